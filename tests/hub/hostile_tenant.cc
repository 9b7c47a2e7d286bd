#include "hostile_tenant.h"

#include <chrono>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/control_http.h"
#include "hub/chunk_map.h"
#include "hub/client.h"
#include "hub/messages.h"
#include "hub/wire.h"

namespace tesser::hub {
namespace {

constexpr std::chrono::seconds kPatience{20};
constexpr std::uint32_t kUnread = 64;
constexpr const char* kHostileNonce = "of the hostile one";

JobSettings settings_of_one(const std::vector<std::int64_t>& sizes) {
  JobSettings settings;
  settings.groups.emplace_back();
  for (std::size_t key = 0; key < sizes.size(); ++key) {
    settings.keys.push_back({"tensor " + std::to_string(key), sizes[key], 0});
  }
  return settings;
}

}  // namespace

Result<std::unique_ptr<LawlessWorker>> LawlessWorker::join(const std::string& hub, int cores, const std::string& job,
                                                           const JobSettings& settings) {
  std::unique_ptr<LawlessWorker> worker(new LawlessWorker);
  TESSER_ASSIGN_OR_RETURN(const auto control, control::ControlClient::open(hub, "", kPatience, "hub"));
  transport::DeviceOptions options;
  options.name = "rank 0";
  options.run = run_of(job, kHostileNonce);
  TESSER_ASSIGN_OR_RETURN(worker->device_, as_result(transport::Device::open(options)));
  TESSER_ASSIGN_OR_RETURN(const ChunkMap map, map_chunks(settings, {cores}));
  TESSER_ASSIGN_OR_RETURN(worker->region_, as_result(worker->device_->allocate(WorkerMemory(map, settings).bytes)));
  JoinRequest request;
  request.job = job;
  request.nonce = kHostileNonce;
  request.memory = worker->region_->handle();
  request.home = worker->region_->handle();
  request.cores = {cores};
  request.settings = settings;
  TESSER_ASSIGN_OR_RETURN(const JoinAnswer joined,
                          control->post("/v1/jobs/join", to_json(request)).and_then(read_join_answer));
  TESSER_ASSIGN_OR_RETURN(worker->channel_,
                          as_result(worker->device_->connect(joined.address, transport::in(kPatience))));
  for (int core = 0; core < cores; ++core) {
    TESSER_ASSIGN_OR_RETURN(auto queues,
                            QueuePair::open(worker->channel_, pull_queue(core), push_queue(core), kUnread));
    worker->queues_.push_back(std::move(queues));
  }
  WorkerRequest self;
  self.job = job;
  self.nonce = kHostileNonce;
  for (bool ready = false; !ready;) {
    TESSER_ASSIGN_OR_RETURN(const ConnectedAnswer answer,
                            control->post("/v1/jobs/connected", to_json(self)).and_then(read_connected_answer));
    ready = answer.ready;
  }
  TESSER_RETURN_IF_ERROR(control->post("/v1/jobs/start", to_json(self)));
  TESSER_RETURN_IF_ERROR(
      worker->queues_.front().wait_until_open(*worker->device_, transport::in(kPatience), "the hub"));
  return worker;
}

bool LawlessWorker::is_thrown_out() {
  return device_->wait([&] { return channel_->failed(); }, transport::in(kPatience));
}

HostileTenant::HostileTenant(std::string hub, int cores, std::string foreign_job)
    : hub_(std::move(hub)), cores_(cores), foreign_job_(std::move(foreign_job)) {
  threads_.emplace_back([this] { flood_requests(); });
  threads_.emplace_back([this] { flood_connections(); });
  threads_.emplace_back([this] { send_nonsense(); });
  threads_.emplace_back([this] { die_in_pushes(); });
}

HostileTenant::~HostileTenant() {
  ends_.store(true);
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

std::string HostileTenant::surprise() const {
  const std::lock_guard lock(mutex_);
  return surprise_;
}

void HostileTenant::note(const std::string& surprise) {
  const std::lock_guard lock(mutex_);
  surprise_ += surprise + "\n";
}

void HostileTenant::flood_requests() {
  const auto control = control::ControlClient::open(hub_, "", kPatience, "hub");
  if (!control) {
    return note(control.error().message);
  }
  WorkerRequest foreign;
  foreign.job = foreign_job_;
  foreign.nonce = "not the nonce";
  const std::string huge(1 << 20, '[');
  while (!ends_.load()) {
    for (const char* path : {"/v1/jobs/leave", "/v1/jobs/start", "/v1/jobs/status", "/v1/jobs/state",
                             "/v1/jobs/rack-weights", "/v1/jobs/connected"}) {
      if ((*control)->post(path, to_json(foreign))) {
        note(std::string("taken without the nonce: ") + path);
      }
      ++acts_;
    }
    for (const std::string& body : {std::string("{}"), std::string("\xff\xfe"), huge, std::string("{\"job\":1}")}) {
      for (const char* path : {"/v1/jobs/join", "/v1/jobs/rack"}) {
        if ((*control)->post(path, body)) {
          note(std::string("taken, and means nothing: ") + path);
        }
        ++acts_;
      }
    }
  }
}

void HostileTenant::flood_connections() {
  const int port = std::stoi(hub_.substr(hub_.rfind(':') + 1));
  std::string bytes(4096, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 37);
  }
  while (!ends_.load()) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      (void)!::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ::close(socket);
    ++acts_;
  }
}

void HostileTenant::send_nonsense() {
  for (int turn = 0; !ends_.load(); ++turn) {
    auto worker = LawlessWorker::join(hub_, cores_, "hostile" + std::to_string(turn), settings_of_one({100}));
    if (!worker) {
      return note(worker.error().message);
    }
    for (std::uint32_t number = 0; number < 200; ++number) {
      (*worker)->send(number * 7919 % transport::NotificationWriter::kMaxNumber);
    }
    ++acts_;
  }
}

void HostileTenant::die_in_pushes() {
  for (int turn = 0; !ends_.load(); ++turn) {
    ClientOptions options;
    options.hubs = {hub_};
    options.job = "dying" + std::to_string(turn);
    options.nonce = kHostileNonce;
    options.settings = settings_of_one({20'000, 30'000});
    options.patience = kPatience;
    const auto client = Client::join(std::move(options));
    const auto started = client ? (*client)->start() : tl::unexpected<Error>(client.error());
    const auto pushed = started ? (*client)->push(1) : started;
    if (!pushed) {
      return note(pushed.error().message);
    }
    (*client)->abandon();
    ++acts_;
  }
}

}  // namespace tesser::hub
