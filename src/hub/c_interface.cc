#include "hub/c_interface.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "hub/client.h"
#include "hub/hub.h"

struct tesser_hub_client {
  std::unique_ptr<tesser::hub::Client> client;
};
struct tesser_hub_server {
  std::unique_ptr<tesser::hub::Hub> hub;
  std::string url;
};

namespace {

using tesser::Error;
using tesser::Result;
using tesser::hub::ClientOptions;
using tesser::hub::HubOptions;
using tesser::hub::Hyperparameters;

static_assert(sizeof(Hyperparameters) == 7 * sizeof(double), "as the header says");

thread_local std::string last_error;
thread_local std::string last_text;

int code_of(const Error& error) {
  last_error = error.message;
  return tesser::exit_code(error);
}

int code_of(const Result<void>& outcome) { return outcome ? 0 : code_of(outcome.error()); }

Result<ClientOptions> read_client_options(const std::string& text) {
  std::string settings;
  TESSER_ASSIGN_OR_RETURN(
      ClientOptions options,
      tesser::read_json_object<ClientOptions>(text, "options", [&](tesser::JsonReader& reader, ClientOptions& value) {
        value.hubs = reader.strings("hubs");
        value.token = reader.string("token");
        value.job = reader.string("job");
        value.nonce = reader.string("nonce");
        value.rank = reader.integer("rank");
        value.patience = std::chrono::milliseconds(static_cast<std::int64_t>(reader.number("patience_seconds") * 1000));
        value.through_network = reader.boolean("network");
        settings = reader.string("settings");
      }));
  TESSER_ASSIGN_OR_RETURN(options.settings, tesser::hub::read_job_settings(settings));
  return options;
}

Result<HubOptions> read_hub_options(const std::string& text) {
  return tesser::read_json_object<HubOptions>(text, "options", [](tesser::JsonReader& reader, HubOptions& value) {
    value.listen = reader.string("listen");
    value.token = reader.string("token");
    value.processors = reader.string("processors");
    value.pins = reader.boolean("pins");
    value.other_hubs = reader.string("hubs");
    value.through_network = reader.boolean("network");
  });
}

}  // namespace

const char* tesser_hub_error(void) { return last_error.c_str(); }

int tesser_hub_join(const char* options, tesser_hub_client** client) {
  auto joined = read_client_options(options).and_then(
      [](ClientOptions read) { return tesser::hub::Client::join(std::move(read)); });
  if (!joined) {
    return code_of(joined.error());
  }
  *client = new tesser_hub_client{std::move(*joined)};
  return 0;
}

void tesser_hub_close(tesser_hub_client* client) { delete client; }

void tesser_hub_abandon(tesser_hub_client* client) { client->client->abandon(); }

void* tesser_hub_gradient(tesser_hub_client* client, int64_t key) { return client->client->gradient(key).data(); }

float* tesser_hub_weights(tesser_hub_client* client, int64_t key) { return client->client->weights(key).data(); }

void tesser_hub_set_initial(tesser_hub_client* client, int64_t key, const float* values, int64_t count) {
  client->client->set_initial(key, {values, static_cast<std::size_t>(count)});
}

int tesser_hub_set_initial_state(tesser_hub_client* client, int64_t key, int tensor, const float* values,
                                 int64_t count) {
  return code_of(client->client->set_initial_state(key, tensor, {values, static_cast<std::size_t>(count)}));
}

void tesser_hub_set_initial_updates(tesser_hub_client* client, int64_t key, int64_t updates) {
  client->client->set_initial_updates(key, updates);
}

int tesser_hub_start(tesser_hub_client* client, int64_t* step, int* is_return) {
  const auto outcome = client->client->start();
  *step = client->client->step();
  *is_return = client->client->is_return() ? 1 : 0;
  return code_of(outcome);
}

int tesser_hub_push(tesser_hub_client* client, int64_t key) { return code_of(client->client->push(key)); }

int tesser_hub_push_rows(tesser_hub_client* client, int64_t key, const int64_t* rows, int64_t count, const void* values,
                         int64_t bytes) {
  return code_of(client->client->push_rows(key, {rows, static_cast<std::size_t>(count)},
                                           {static_cast<const std::byte*>(values), static_cast<std::size_t>(bytes)}));
}

int tesser_hub_push_none(tesser_hub_client* client, int64_t key) { return code_of(client->client->push_none(key)); }

int tesser_hub_withdraw(tesser_hub_client* client, const int64_t* keys, int64_t count) {
  return code_of(client->client->withdraw({keys, static_cast<std::size_t>(count)}));
}

int tesser_hub_commit(tesser_hub_client* client, const double* numbers, int64_t groups) {
  std::vector<Hyperparameters> copied(static_cast<std::size_t>(groups));
  std::memcpy(static_cast<void*>(copied.data()), numbers, copied.size() * sizeof(Hyperparameters));
  return code_of(client->client->commit(copied));
}

int tesser_hub_wait(tesser_hub_client* client, int64_t key) { return code_of(client->client->wait(key)); }

int tesser_hub_wait_all(tesser_hub_client* client) { return code_of(client->client->wait_all()); }

int tesser_hub_wait_for(tesser_hub_client* client, int64_t key, int64_t milliseconds, int* is_current) {
  const auto outcome = client->client->wait_for(key, std::chrono::milliseconds(milliseconds));
  if (!outcome) {
    return code_of(outcome.error());
  }
  *is_current = *outcome ? 1 : 0;
  return 0;
}

int tesser_hub_read_state(tesser_hub_client* client, int64_t key, int tensor, float* values, int64_t count) {
  return code_of(client->client->read_state(key, tensor, {values, static_cast<std::size_t>(count)}));
}

int tesser_hub_read_updates(tesser_hub_client* client, int64_t key, int64_t* updates) {
  const auto outcome = client->client->read_updates(key);
  if (!outcome) {
    return code_of(outcome.error());
  }
  *updates = *outcome;
  return 0;
}

int tesser_hub_leave(tesser_hub_client* client) { return code_of(client->client->leave()); }

const char* tesser_hub_state(tesser_hub_client* client, int64_t hub) {
  auto outcome = client->client->state(static_cast<std::size_t>(hub));
  if (!outcome) {
    code_of(outcome.error());
    return nullptr;
  }
  last_text = std::move(*outcome);
  return last_text.c_str();
}

const char* tesser_hub_paths(tesser_hub_client* client) {
  last_text.clear();
  for (const std::string& path : client->client->paths()) {
    last_text += path + "\n";
  }
  return last_text.c_str();
}

int tesser_hub_serve(const char* options, tesser_hub_server** server) {
  auto hub =
      read_hub_options(options).and_then([](HubOptions read) { return tesser::hub::Hub::open(std::move(read)); });
  if (!hub) {
    return code_of(hub.error());
  }
  std::string url = (*hub)->url();
  *server = new tesser_hub_server{std::move(*hub), std::move(url)};
  return 0;
}

const char* tesser_hub_url(tesser_hub_server* server) { return server->url.c_str(); }

void tesser_hub_end(tesser_hub_server* server) { delete server; }
