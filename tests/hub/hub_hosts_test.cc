// A hub connects to no machine only because a request names it.
#include "hub/hub_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/control_http.h"
#include "hub/messages.h"
#include "hub/wire.h"
#include "replica_run.h"

namespace tesser::hub {
namespace {

using ::testing::HasSubstr;

// Reserved: no machine has it.
constexpr const char* kElsewhere = "240.0.0.1";

TEST(HubHostsTest, ThisMachineIsAllowedAndWhatIsListed) {
  const HubHosts none("");
  for (const char* place : {"127.0.0.1:80", "http://127.8.9.1:80", "[::1]:80", "http://localhost:7700"}) {
    EXPECT_TRUE(none.check(place).has_value()) << place;
  }
  for (const char* place : {"240.0.0.1:80", "http://240.0.0.1:80", "[2001:db8::1]:80", "http://node7:80", "0.0.0.0:80",
                            "[::]:80", "", ":80", "http://127.0.0.1@node7:80", "127.0.0.1.node7:80"}) {
    EXPECT_FALSE(none.check(place).has_value()) << place;
  }
  const HubHosts some("240.0.0.1,node7,2001:db8::1");
  for (const char* place : {"240.0.0.1:80", "http://node7:7700", "http://[2001:db8::1]:80", "127.0.0.1:80"}) {
    EXPECT_TRUE(some.check(place).has_value()) << place;
  }
  EXPECT_FALSE(some.check("240.0.0.2:80").has_value());
  EXPECT_FALSE(some.check("node70:80").has_value());
  EXPECT_TRUE(HubHosts("any").check("240.0.0.9:1").has_value());
}

JoinRequest request_of(const JobSettings& settings) {
  JoinRequest request;
  request.job = "forged";
  request.nonce = kNonce;
  request.cores = {1};
  request.settings = settings;
  return request;
}

void expect_refusal(const JoinRequest& request) {
  const auto hubs = open_hubs(1, 1);
  const auto control = control::ControlClient::open(hubs[0]->url(), "", std::chrono::seconds(20), "hub");
  ASSERT_TRUE(control.has_value());
  const auto answer = (*control)->post("/v1/jobs/join", to_json(request));
  ASSERT_FALSE(answer.has_value());
  EXPECT_THAT(answer.error().message, HasSubstr("names another hub at 240.0.0.1"));
  EXPECT_THAT(answer.error().message, HasSubstr("--hubs 240.0.0.1"));
}

TEST(HubHostsTest, AJobWhoseFirstHubIsElsewhereIsRefused) {
  for (const bool clips : {false, true}) {
    JobSettings settings = settings_for(1, {100, 100});
    settings.one_machine = !clips;
    settings.clip_norm = clips ? 1 : 0;
    JoinRequest request = request_of(settings);
    request.hub = 1;
    request.cores = {1, 1};
    request.home_address = std::string(kElsewhere) + ":80/1";
    expect_refusal(request);
  }
}

TEST(HubHostsTest, AJobWithARackElsewhereIsRefused) {
  JobSettings settings = settings_for(2, {100});
  settings.racks = 2;
  JoinRequest request = request_of(settings);
  request.urls = {"http://127.0.0.1:1", std::string("http://") + kElsewhere + ":80"};
  expect_refusal(request);
}

}  // namespace
}  // namespace tesser::hub
