#include "hub/messages.h"

#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"

namespace tesser::hub {
namespace {

std::string handle_text(const transport::RegionHandle& handle) {
  std::string text;
  for (const char byte : handle.serialise()) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

transport::RegionHandle read_handle(JsonReader& reader, std::string_view key) {
  const std::string text = reader.string(key);
  std::string bytes;
  for (std::size_t digit = 0; digit + 1 < text.size(); digit += 2) {
    const auto value = [](char each) { return each >= 'a' ? each - 'a' + 10 : each - '0'; };
    bytes += static_cast<char>(value(text[digit]) * 16 + value(text[digit + 1]));
  }
  auto handle = transport::RegionHandle::parse(bytes);
  if (text.find_first_not_of("0123456789abcdef") != std::string::npos || !handle) {
    reader.fail(fmt::format("'{}' names no memory", key));
    return {};
  }
  return *handle;
}

}  // namespace

std::string to_json(const JoinRequest& request) {
  return JsonMembers()
      .add("job", request.job)
      .add("nonce", request.nonce)
      .add("rank", request.rank)
      .add("host", request.host)
      .add("process", request.process)
      .add("memory", handle_text(request.memory))
      .add("hub", request.hub)
      .add_text("cores", json_list(request.cores))
      .add("home_address", request.home_address)
      .add("home", handle_text(request.home))
      .add_text("urls", json_list(request.urls))
      .add("settings", to_json(request.settings))
      .object();
}

Result<JoinRequest> read_join_request(const std::string& text) {
  std::string settings;
  TESSER_ASSIGN_OR_RETURN(JoinRequest request,
                          read_json_object<JoinRequest>(text, "join", [&](JsonReader& reader, JoinRequest& value) {
                            value.job = reader.string("job");
                            value.nonce = reader.string("nonce");
                            value.rank = reader.integer("rank", 0);
                            value.host = reader.string("host");
                            value.process = reader.integer("process", 0);
                            value.memory = read_handle(reader, "memory");
                            value.hub = reader.integer("hub", 0);
                            value.cores = reader.integers("cores");
                            value.home_address = reader.string("home_address");
                            value.home = read_handle(reader, "home");
                            value.urls = reader.strings("urls");
                            settings = reader.string("settings");
                          }));
  TESSER_ASSIGN_OR_RETURN(request.settings, read_job_settings(settings));
  return request;
}

std::string to_json(const JoinAnswer& answer) {
  return JsonMembers()
      .add("address", answer.address)
      .add("memory", handle_text(answer.memory))
      .add("is_return", answer.is_return)
      .add("commits", answer.commits)
      .object();
}

Result<JoinAnswer> read_join_answer(const std::string& text) {
  return read_json_object<JoinAnswer>(text, "answer", [](JsonReader& reader, JoinAnswer& answer) {
    answer.address = reader.string("address");
    answer.memory = read_handle(reader, "memory");
    answer.is_return = reader.boolean("is_return");
    answer.commits = reader.integer("commits", 0);
  });
}

std::string to_json(const WorkerRequest& request) {
  return JsonMembers()
      .add("job", request.job)
      .add("nonce", request.nonce)
      .add("rank", request.rank)
      .add("shares_weights", request.shares_weights)
      .add("commits", request.commits)
      .object();
}

Result<WorkerRequest> read_worker_request(const std::string& text) {
  return read_json_object<WorkerRequest>(text, "request", [](JsonReader& reader, WorkerRequest& request) {
    request.job = reader.string("job");
    request.nonce = reader.string("nonce");
    request.rank = reader.integer("rank", 0);
    request.shares_weights = reader.boolean("shares_weights");
    request.commits = reader.integer("commits", 0);
  });
}

std::string to_json(const RackRequest& request) {
  return JsonMembers()
      .add("job", request.job)
      .add("nonce", request.nonce)
      .add("rack", request.rack)
      .add("memory", handle_text(request.memory))
      .add("inbox", handle_text(request.inbox))
      .add("cores", request.cores)
      .object();
}

Result<RackRequest> read_rack_request(const std::string& text) {
  return read_json_object<RackRequest>(text, "request", [](JsonReader& reader, RackRequest& request) {
    request.job = reader.string("job");
    request.nonce = reader.string("nonce");
    request.rack = reader.integer("rack", 0);
    request.memory = read_handle(reader, "memory");
    request.inbox = read_handle(reader, "inbox");
    request.cores = reader.integer("cores", 1);
  });
}

std::string to_json(const RackAnswer& answer) {
  return JsonMembers()
      .add("ready", answer.ready)
      .add("address", answer.address)
      .add("memory", handle_text(answer.memory))
      .add("inbox", handle_text(answer.inbox))
      .object();
}

Result<RackAnswer> read_rack_answer(const std::string& text) {
  return read_json_object<RackAnswer>(text, "answer", [](JsonReader& reader, RackAnswer& answer) {
    answer.ready = reader.boolean("ready");
    answer.address = reader.string("address");
    answer.memory = read_handle(reader, "memory");
    answer.inbox = read_handle(reader, "inbox");
  });
}

std::string to_json(const ConnectedAnswer& answer) {
  return JsonMembers()
      .add("ready", answer.ready)
      .add("has_inbox", answer.has_inbox)
      .add("inbox", handle_text(answer.inbox))
      .object();
}

Result<ConnectedAnswer> read_connected_answer(const std::string& text) {
  return read_json_object<ConnectedAnswer>(text, "answer", [](JsonReader& reader, ConnectedAnswer& answer) {
    answer.ready = reader.boolean("ready");
    answer.has_inbox = reader.boolean("has_inbox");
    answer.inbox = read_handle(reader, "inbox");
  });
}

std::string to_json(const StartAnswer& answer) {
  return JsonMembers()
      .add("ready", answer.ready)
      .add("step", answer.step)
      .add("waiting_for", answer.waiting_for)
      .object();
}

Result<StartAnswer> read_start_answer(const std::string& text) {
  return read_json_object<StartAnswer>(text, "answer", [](JsonReader& reader, StartAnswer& answer) {
    answer.ready = reader.boolean("ready");
    answer.step = reader.integer("step", 0);
    answer.waiting_for = reader.string("waiting_for");
  });
}

std::string to_json(const JobStatus& status) {
  return JsonMembers().add("state", status.state).add("reason", status.reason).object();
}

Result<JobStatus> read_job_status(const std::string& text) {
  return read_json_object<JobStatus>(text, "answer", [](JsonReader& reader, JobStatus& status) {
    status.state = reader.string("state");
    status.reason = reader.string("reason");
  });
}

}  // namespace tesser::hub
