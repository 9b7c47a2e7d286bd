#include "platform/store/tenants.h"

#include <memory>
#include <string>
#include <utility>

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/store/schema.h"
#include "reopened_store.h"

namespace tesser::platform {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class TenantsTest : public ReopenedStoreTest {
 protected:
  Tenants& tenants() { return store_->tenants(); }
  void add(const std::string& team, const std::string& user, TeamRole role) {
    ASSERT_TRUE(tenants().add_team(team, 1, true));
    (void)tenants().add_user(user, false, 1);
    ASSERT_TRUE(tenants().set_member(team, user, role));
  }
  TokenRecord token(const std::string& text, const std::string& user, std::optional<std::string> only_in = {},
                    std::int64_t expires = 0) {
    auto made = tenants().add_token(text, {"", user, std::move(only_in), "", user, 1, expires});
    EXPECT_TRUE(made) << made.error().message;
    return made.value_or(TokenRecord{});
  }
  Caller caller(const std::string& text, std::int64_t now = 10) {
    const auto found = tenants().caller(text, now);
    EXPECT_TRUE(found && *found) << text;
    return found && *found ? **found : Caller{};
  }
  bool is_known(const std::string& text, std::int64_t now = 10) { return tenants().caller(text, now)->has_value(); }
  void submit(const std::string& id, const std::string& team) {
    NewJob job;
    job.id = id;
    job.team = team;
    ASSERT_TRUE(store_->submit(job, "token of " + id));
  }
};

TEST_F(TenantsTest, RolesAllowWhatTheyShouldAndNoMore) {
  add("blue", "viewer", TeamRole::kViewer);
  add("blue", "member", TeamRole::kMember);
  add("blue", "head", TeamRole::kAdministrator);
  add("red", "member", TeamRole::kViewer);
  ASSERT_TRUE(tenants().add_user("root", true, 1));
  for (const char* user : {"viewer", "member", "head", "root"}) {
    token(std::string("of ") + user, user);
  }
  const auto rights = [&](const std::string& user, const std::string& team) {
    const Caller who = caller("of " + user);
    std::string text;
    text += who.sees(team) ? 's' : '-';
    text += who.may_submit(team) ? 'w' : '-';
    text += who.may_change(user, team) ? 'o' : '-';    // an own job
    text += who.may_change("else", team) ? 'x' : '-';  // another's
    text += who.may_administer(team) ? 'a' : '-';
    return text;
  };
  EXPECT_EQ(rights("viewer", "blue"), "s----");
  EXPECT_EQ(rights("member", "blue"), "swo--");
  EXPECT_EQ(rights("head", "blue"), "swoxa");
  EXPECT_EQ(rights("member", "red"), "s----");  // also of jobs that were submitted in another role
  EXPECT_EQ(rights("head", "red"), "-----");
  EXPECT_EQ(rights("root", "red"), "swoxa");
  EXPECT_EQ(rights("root", "of no jobs yet"), "swoxa");
  EXPECT_EQ(caller("of root").seen_teams(), std::nullopt);
  EXPECT_THAT(*caller("of member").seen_teams(), UnorderedElementsAre("blue", "red"));
}

TEST_F(TenantsTest, TokensLimitedToATeamGiveNothingElse) {
  add("blue", "ann", TeamRole::kAdministrator);
  add("red", "ann", TeamRole::kMember);
  ASSERT_TRUE(tenants().add_user("root", true, 1));
  token("red's", "ann", "red");
  token("root's", "root", "blue");
  EXPECT_THAT(caller("red's").teams, UnorderedElementsAre(Pair("red", TeamRole::kMember)));
  EXPECT_FALSE(caller("root's").is_administrator);
  EXPECT_TRUE(caller("root's").may_administer("blue"));
  EXPECT_FALSE(caller("root's").sees("red"));
  // What its user may do is what counts, not what it was when the token was made.
  ASSERT_TRUE(tenants().set_member("red", "ann", TeamRole::kViewer));
  EXPECT_FALSE(caller("red's").may_submit("red"));
  ASSERT_TRUE(tenants().remove_member("red", "ann"));
  EXPECT_THAT(caller("red's").teams, IsEmpty());
  EXPECT_THAT(tenants().add_token("x", {"", "ann", "red", "", "", 1, 0}).error().message, HasSubstr("no member"));
}

TEST_F(TenantsTest, TokensExpireAndAreRevoked) {
  add("blue", "ann", TeamRole::kMember);
  const std::string forever = token("forever", "ann").id;
  token("short", "ann", std::nullopt, 100);
  EXPECT_TRUE(is_known("short", 99));
  EXPECT_FALSE(is_known("short", 100));
  EXPECT_EQ(tenants().tokens(99)->size(), 2U);
  EXPECT_EQ(tenants().tokens(100)->size(), 1U);
  EXPECT_TRUE(tenants().revoke_token(forever, 5));
  EXPECT_EQ(tenants().revoke_token(forever, 6).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(is_known("forever"));
  EXPECT_TRUE(*tenants().knows_token("forever"));  // so that nothing makes it anew
  EXPECT_FALSE(*tenants().knows_token("else"));
  token("third", "ann");
  ASSERT_TRUE(tenants().add_user("root", true, 1));
  ASSERT_TRUE(tenants().remove_user("ann"));
  EXPECT_FALSE(is_known("third"));
}

TEST_F(TenantsTest, TokensAreKeptAsHashesAndThoseOfGuardiansGoWithTheirJob) {
  add("blue", "ann", TeamRole::kMember);
  token("ann's secret", "ann");
  submit("j1", "blue");
  EXPECT_EQ(caller("token of j1").job, "j1");
  EXPECT_TRUE(caller("token of j1").is_guardian());
  EXPECT_FALSE(caller("token of j1").sees("blue"));
  EXPECT_EQ(tenants().tokens(1)->size(), 1U);
  // Nobody revokes a guardian's.
  EXPECT_EQ(tenants().revoke_token(caller("token of j1").token, 1).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(store_->remove("j1"));
  EXPECT_FALSE(is_known("token of j1"));
  reopen();
  SQLite::Database raw(file().string(), SQLite::OPEN_READONLY);
  EXPECT_EQ(raw.execAndGet("SELECT length(hash) FROM tokens").getInt(), 32);
  SQLite::Statement rows(raw, "SELECT * FROM tokens");
  while (rows.executeStep()) {
    for (int i = 0; i < rows.getColumnCount(); ++i) {
      EXPECT_EQ(rows.getColumn(i).getString().find("secret"), std::string::npos);
    }
  }
}

TEST_F(TenantsTest, TheLastAdministratorAndTeamsWithJobsStay) {
  ASSERT_TRUE(tenants().add_user("root", true, 1));
  EXPECT_THAT(tenants().remove_user("root").error().message, HasSubstr("last administrator"));
  ASSERT_TRUE(tenants().add_user("other", true, 1));
  EXPECT_TRUE(tenants().remove_user("root"));
  EXPECT_EQ(tenants().remove_user("root").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(tenants().add_user("other", false, 1).error().code, ErrorCode::kInvalidInput);
  add("blue", "ann", TeamRole::kMember);
  EXPECT_EQ(tenants().add_team("blue", 1, false).error().code, ErrorCode::kInvalidInput);
  submit("j1", "blue");
  EXPECT_THAT(tenants().remove_team("blue").error().message, HasSubstr("has jobs"));
  ASSERT_TRUE(store_->remove("j1"));
  EXPECT_TRUE(tenants().remove_team("blue"));
  EXPECT_EQ(tenants().remove_team("blue").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(tenants().set_member("blue", "ann", TeamRole::kMember).error().code, ErrorCode::kNotFound);
  add("red", "ann", TeamRole::kMember);
  EXPECT_EQ(tenants().set_member("red", "nobody", TeamRole::kMember).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(tenants().remove_member("red", "nobody").error().code, ErrorCode::kNotFound);
}

TEST_F(TenantsTest, EachTeamHasASystemUserThatIsNeverAnothers) {
  ASSERT_TRUE(tenants().add_team("blue", 1, false));
  ASSERT_TRUE(tenants().add_team("red", 1, false));
  EXPECT_EQ(*tenants().learner_user("blue", 3000, 3001), 3000);
  EXPECT_EQ(*tenants().learner_user("red", 3000, 3001), 3001);
  EXPECT_EQ(*tenants().learner_user("blue", 3000, 3001), 3000);
  ASSERT_TRUE(tenants().remove_team("blue"));
  EXPECT_THAT(tenants().learner_user("green", 3000, 3001).error().message, HasSubstr("larger range"));
  EXPECT_EQ(*tenants().learner_user("green", 3000, 3010), 3002);
  EXPECT_EQ(*tenants().learner_user("blue", 3000, 3001), 3000);  // its files may still be somewhere
  EXPECT_THAT(tenants().learner_user("green", 5000, 5010).error().message, HasSubstr("not within"));
  EXPECT_EQ(tenants().teams()->front().learner_user, std::optional(3001));  // red
}

TEST_F(TenantsTest, AFileOfBeforeTenantsKeepsItsTokens) {
  store_.reset();
  std::filesystem::remove(file());
  {
    SQLite::Database raw(file().string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    raw.exec(std::string(schema_steps()[0]));
    raw.exec(std::string(schema_steps()[1]));
    raw.exec("PRAGMA application_id = " + std::to_string(kStoreApplication));
    raw.exec("PRAGMA user_version = 2");
    raw.exec(
        "INSERT INTO jobs (id, name, description, user, team, priority, learners, resources, state, submitted, "
        "queued, changed) VALUES ('old', 'n', '', 'admin', 'vision', 50, 1, '{}', 'QUEUED', 7, 1, 1)");
    // SHA-256 of "admin", "user" and "guardian".
    raw.exec(
        "INSERT INTO tokens VALUES "
        "(x'8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918', 'admin', 'admin', 'default', NULL, 5), "
        "(x'04f8996da763b7a969b1028ee3007569eaf3a635486ddab211d512c85b9df8fb', 'user', 'ann', 'speech', NULL, 6), "
        "(x'bc4c0ffcc703f9aad1f1e7fa36b4bcb6a9a1ee3ee4b3d4b0f4f0b9f4e0a0a0a0', 'guardian', 'admin', 'vision', 'old', "
        "7)");
  }
  reopen();
  EXPECT_TRUE(caller("admin").is_administrator);
  EXPECT_THAT(caller("admin").teams, UnorderedElementsAre(Pair("default", TeamRole::kMember)));
  EXPECT_FALSE(caller("user").is_administrator);
  EXPECT_THAT(caller("user").teams, UnorderedElementsAre(Pair("speech", TeamRole::kMember)));
  std::vector<std::string> names;
  const auto teams = tenants().teams();
  for (const Team& team : *teams) {
    names.push_back(team.name);
  }
  EXPECT_THAT(names, UnorderedElementsAre("default", "speech", "vision"));
  EXPECT_EQ(tenants().tokens(1)->size(), 2U);
  EXPECT_TRUE(store_->remove("old"));
  SQLite::Database raw(file().string(), SQLite::OPEN_READONLY);
  EXPECT_EQ(raw.execAndGet("SELECT count(*) FROM tokens").getInt(), 2);
}

TEST(TenantNames, AreSafeInPathsLabelsAndLines) {
  for (const char* good : {"a", "Ann", "ann.b@example-site.org", "7"}) {
    EXPECT_TRUE(is_user_name(good)) << good;
  }
  for (const char* bad : {"", ".a", "a-", "a b", "a/b", "..", "a\nb", "ä", "a:b"}) {
    EXPECT_FALSE(is_user_name(bad)) << bad;
  }
  EXPECT_FALSE(is_user_name(std::string(64, 'a')));
  EXPECT_TRUE(is_team_name("vision-2"));
  for (const char* bad : {"", "-a", "a-", "A", "a_b", "a.b", "../x"}) {
    EXPECT_FALSE(is_team_name(bad)) << bad;
  }
}

}  // namespace
}  // namespace tesser::platform
