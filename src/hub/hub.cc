#include "hub/hub.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "control/control_http.h"
#include "hub/hub_hosts.h"
#include "hub/huge_pages.h"
#include "hub/job.h"
#include "hub/metrics.h"
#include "hub/topology.h"

namespace tesser::hub {
namespace {

using Clock = std::chrono::steady_clock;

// Requests are short; a worker that waits asks again and again.
constexpr int kRequestThreads = 64;
// A job that is over gives its memory back after this, when its workers have seen why.
constexpr std::chrono::seconds kOverKept{5};
// At once; if there are more, those seen to be over before are not kept.
constexpr std::size_t kMostOver = 64;
constexpr std::chrono::milliseconds kReaping{200};
// Who floods the hub with requests that are wrong gets no faster than this, on each of its connections.
constexpr std::chrono::milliseconds kBeforeRefusals{10};
constexpr std::size_t kMostFinished = 1000;
constexpr std::size_t kLongestName = 200;
constexpr std::size_t kShortestNonce = 8;

class HubServer final : public Hub {
 public:
  HubServer(HubOptions options, std::vector<Processor> processors)
      : options_(std::move(options)), hosts_(options_.other_hubs), processors_(std::move(processors)) {
    place_.host = options_.listen.substr(0, options_.listen.rfind(':'));
    for (const Processor& each : processors_) {
      place_.processors.push_back(options_.pins ? each.number : -1);
    }
    place_.through_network = options_.through_network;
    place_.huge_pages = options_.huge_pages;
    place_.log = options_.log;
    place_.token = options_.token;
    place_.patience = options_.patience;
    place_.check_hub = [this](const std::string& place) { return hosts_.check(place); };
  }

  ~HubServer() override {
    server_.reset();
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    stopped_.notify_all();
    if (reaper_.joinable()) {
      reaper_.join();
    }
  }

  Result<void> serve() {
    if (std::getenv("UCX_NET_DEVICES") == nullptr) {  // else the user has chosen
      TESSER_ASSIGN_OR_RETURN(const std::vector<Adapter> all, adapters());
      place_.adapters = adapters_near(all, processors_);
    }
    control::ControlServerOptions options;
    options.what = "hub";
    options.get = [this](const std::string& path, const std::string&) { return show(path); };
    options.needs_token = [](const std::string& path) { return path != "/metrics"; };
    options.tenants = options_.tenants;
    options.answer_tenant = [this](const std::string& tenant, const std::string& path, const std::string& body) {
      auto answered = answer(tenant, path, body);
      if (!answered) {
        std::this_thread::sleep_for(kBeforeRefusals);
      }
      return answered;
    };
    TESSER_ASSIGN_OR_RETURN(server_, control::ControlServer::open(options_.listen, options_.token, kRequestThreads,
                                                                  nullptr, std::move(options)));
    reaper_ = std::thread([this] { reap(); });
    return {};
  }

  std::string url() const override { return fmt::format("http://{}:{}", place_.host, server_->port()); }

  std::string describe() const override {
    std::string text = fmt::format("{:>4} {:>9} {:>6}\n", "core", "processor", "socket");
    for (std::size_t core = 0; core < processors_.size(); ++core) {
      text += fmt::format("{:>4} {:>9} {:>6}\n", core, options_.pins ? std::to_string(processors_[core].number) : "any",
                          processors_[core].socket);
    }
    if (!place_.adapters.empty()) {
      text += fmt::format("adapters: {}, of these processors' sockets\n", place_.adapters);
    }
    return text + describe_pages(options_.huge_pages) + "\n";
  }

 private:
  struct Entry {
    std::shared_ptr<Job> job;
    std::string tenant;
    std::uint64_t memory = 0;  // as it counts against the tenant's
    std::optional<Clock::time_point> over_since = std::nullopt;
  };

  Result<std::string> show(const std::string& path) {
    if (path == "/metrics") {
      return metrics();
    }
    if (path == "/v1/hub") {
      return JsonMembers().add("cores", static_cast<std::int64_t>(processors_.size())).object();
    }
    return not_found(fmt::format("a hub has no {}", path));
  }

  Result<std::string> answer(const std::string& tenant, const std::string& path, const std::string& body) {
    if (path == "/v1/jobs/join") {
      TESSER_ASSIGN_OR_RETURN(const JoinRequest request, read_join_request(body));
      TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, job_to_join(tenant, request));
      TESSER_ASSIGN_OR_RETURN(const JoinAnswer joined, job->join(request));
      return to_json(joined);
    }
    if (path == "/v1/jobs/rack") {
      return introduce(body);
    }
    TESSER_ASSIGN_OR_RETURN(const WorkerRequest request, read_worker_request(body));
    if (path == "/v1/jobs/status") {
      return status(request);
    }
    TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, job_of(request));
    if (path == "/v1/jobs/connected") {
      return job->connected(request).map([](const ConnectedAnswer& each) { return to_json(each); });
    }
    if (path == "/v1/jobs/start") {
      return job->start(request).map([](const StartAnswer& each) { return to_json(each); });
    }
    if (path == "/v1/jobs/rack-weights") {
      job->take_rack_weights();
      return std::string("{}");
    }
    if (path == "/v1/jobs/state") {
      TESSER_RETURN_IF_ERROR(job->fetch_state());
      return std::string("{}");
    }
    if (path == "/v1/jobs/leave") {
      TESSER_RETURN_IF_ERROR(job->leave(request));
      return std::string("{}");
    }
    return not_found(fmt::format("a hub has no {}", path));
  }

  tl::unexpected<Error> refuse(const std::string& name, const std::string& why) {
    ++refused_;
    options_.log(fmt::format("refused a request for job {}: {}", name, why));
    return invalid_input(fmt::format("job {}: {}", name, why));
  }

  // What a job takes here, if the tenant may open it.
  Result<std::uint64_t> admit(const std::string& tenant, const JoinRequest& request) {
    TESSER_RETURN_IF_ERROR(check(request.settings));
    TESSER_ASSIGN_OR_RETURN(const std::uint64_t bytes, Job::memory_bytes(request.settings, request.cores));
    if (options_.job_memory != 0 && bytes > options_.job_memory) {
      return refuse(request.job, fmt::format("it takes {} bytes for weights and optimizer state, and one job may "
                                             "have {}",
                                             bytes, options_.job_memory));
    }
    int all = static_cast<int>(opening_.size());
    int own = static_cast<int>(std::count_if(opening_.begin(), opening_.end(),
                                             [&](const auto& each) { return each.second.tenant == tenant; }));
    std::uint64_t memory = bytes;
    for (const auto& [name, entry] : opening_) {
      memory += entry.tenant == tenant ? entry.memory : 0;
    }
    for (const auto& [name, entry] : jobs_) {
      memory += entry.tenant == tenant ? entry.memory : 0;  // also of those that are over, until they are gone
      if (!entry.over_since) {
        ++all;
        own += entry.tenant == tenant ? 1 : 0;
      }
    }
    const int most = options_.tenants.empty() ? options_.jobs : options_.tenant_jobs;
    if (own >= most) {
      return refuse(request.job, fmt::format("{} has {} jobs here and may have {}", who(tenant), own, most));
    }
    if (all >= options_.jobs) {
      return refuse(request.job, fmt::format("this hub has {} jobs and takes no more at once", all));
    }
    if (options_.tenant_memory != 0 && memory > options_.tenant_memory) {
      return refuse(request.job, fmt::format("with its {} bytes {} would have {} bytes here and may have {}", bytes,
                                             who(tenant), memory, options_.tenant_memory));
    }
    return bytes;
  }

  static std::string who(const std::string& tenant) {
    return tenant.empty() ? "whoever has no name here" : "tenant " + tenant;
  }

  Result<std::shared_ptr<Job>> job_to_join(const std::string& tenant, const JoinRequest& request) {
    std::shared_ptr<Job> earlier;  // of this name, and over: it ends its threads when other requests can go on
    std::unique_lock lock(mutex_);
    // Its other workers wait while the first one's request opens a job; other jobs do not.
    opened_.wait(lock, [&] { return !opening_.contains(request.job); });
    if (request.job.empty() || request.job.size() > kLongestName || request.nonce.size() < kShortestNonce) {
      return refuse(
          request.job.substr(0, kLongestName),
          fmt::format("a job's name has 1 to {} bytes, and its nonce {} or more", kLongestName, kShortestNonce));
    }
    if (const auto found = jobs_.find(request.job); found != jobs_.end() && !found->second.job->is_over()) {
      if (!found->second.job->has_nonce(request.nonce)) {
        return refuse(request.job, "another job of this name runs, whose nonce this is not");
      }
      if (found->second.tenant != tenant) {
        return refuse(request.job, "another tenant has a job of this name");
      }
      return found->second.job;
    }
    if (const auto allowed = check_other_hubs(request); !allowed) {
      return refuse(request.job, allowed.error().message);
    }
    JobPlace place = place_;
    if (options_.job_bandwidth > 0) {
      place.rate_limit = std::make_shared<RateLimit>(options_.job_bandwidth);
    }
    TESSER_ASSIGN_OR_RETURN(const std::uint64_t memory, admit(tenant, request));
    if (request.settings.norm_jobs > 1) {
      place.norm_group = norm_group(request);
    }
    place.has_other_jobs =
        std::any_of(jobs_.begin(), jobs_.end(), [](const auto& each) { return !each.second.over_since; });
    opening_[request.job] = {nullptr, tenant, memory};
    lock.unlock();
    Result<std::unique_ptr<Job>> opened = Job::open(place, request);
    lock.lock();
    opening_.erase(request.job);
    opened_.notify_all();
    TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, std::move(opened));
    earlier = std::exchange(jobs_[request.job], {job, tenant, memory}).job;
    finished_.erase(request.job);
    options_.log(fmt::format("job {}: {} workers, {} tensors\n{}", request.job, request.settings.replicas,
                             request.settings.keys.size(), job->mapping()));
    return job;
  }

  // Of jobs that know the same nonce. It ends with the last of them.
  std::shared_ptr<NormGroup> norm_group(const JoinRequest& request) {
    std::erase_if(norm_groups_, [](const auto& each) { return each.second.expired(); });
    std::weak_ptr<NormGroup>& known = norm_groups_[{request.settings.norm_group, request.nonce}];
    std::shared_ptr<NormGroup> group = known.lock();
    if (group == nullptr) {
      group = std::make_shared<NormGroup>(static_cast<std::size_t>(request.settings.norm_jobs));
      known = group;
    }
    return group;
  }

  // Those that the job will connect to.
  Result<void> check_other_hubs(const JoinRequest& request) const {
    if (request.hub != 0 && (request.settings.one_machine || request.settings.clip_norm > 0)) {
      TESSER_RETURN_IF_ERROR(hosts_.check(request.home_address));
    }
    for (const std::string& url : request.urls) {
      TESSER_RETURN_IF_ERROR(hosts_.check(url));
    }
    return {};
  }

  Result<std::shared_ptr<Job>> job_of(const WorkerRequest& request) {
    const std::lock_guard lock(mutex_);
    const auto found = jobs_.find(request.job);
    if (found == jobs_.end() || !found->second.job->has_nonce(request.nonce)) {
      return refuse(request.job.substr(0, kLongestName), "there is none of this name and nonce");
    }
    return found->second.job;
  }

  // Another rack's hub may come before this rack's workers.
  Result<std::string> introduce(const std::string& body) {
    TESSER_ASSIGN_OR_RETURN(const RackRequest request, read_rack_request(body));
    {
      const std::lock_guard lock(mutex_);
      if (!jobs_.contains(request.job)) {
        return to_json(RackAnswer{});
      }
    }
    WorkerRequest asking;
    asking.job = request.job;
    asking.nonce = request.nonce;
    TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, job_of(asking));
    return job->introduce(request).map([](const RackAnswer& each) { return to_json(each); });
  }

  Result<std::string> status(const WorkerRequest& request) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = finished_.find(request.job);
      if (found != finished_.end() && control::is_same_secret(request.nonce, found->second.nonce)) {
        return to_json(found->second.status);
      }
    }
    TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, job_of(request));
    return to_json(job->status());
  }

  std::string metrics() {
    std::vector<std::shared_ptr<Job>> jobs;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [name, entry] : jobs_) {
        jobs.push_back(entry.job);
      }
    }
    std::vector<JobFigures> figures;
    for (const auto& job : jobs) {
      figures.push_back(job->figures());
    }
    return metrics_text(figures, refused_.load());
  }

  void reap() {
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, kReaping, [this] { return stops_; })) {
      std::vector<std::shared_ptr<Job>> gone;
      std::vector<std::shared_ptr<Job>> over;
      const auto known_over = static_cast<std::size_t>(
          std::count_if(jobs_.begin(), jobs_.end(), [](const auto& each) { return each.second.over_since; }));
      const auto kept = known_over > kMostOver ? Clock::duration::zero() : Clock::duration(kOverKept);
      for (auto entry = jobs_.begin(); entry != jobs_.end();) {
        Entry& each = entry->second;
        if (!each.over_since && each.job->is_over()) {
          each.over_since = Clock::now();
          over.push_back(each.job);
        }
        if (each.over_since && Clock::now() - *each.over_since > kept) {
          if (finished_.size() >= kMostFinished) {
            finished_.erase(finished_.begin());
          }
          finished_[entry->first] = {each.job->nonce(), each.job->status()};
          gone.push_back(std::move(each.job));
          entry = jobs_.erase(entry);
        } else {
          ++entry;
        }
      }
      lock.unlock();
      // Threads take a moment to end; those of jobs that are over would go on looking for something to do.
      for (const auto& job : over) {
        job->end_threads();
      }
      over.clear();
      gone.clear();
      lock.lock();
    }
    lock.unlock();
    jobs_.clear();
  }

  struct Finished {
    std::string nonce;
    JobStatus status;
  };

  const HubOptions options_;
  const HubHosts hosts_;
  const std::vector<Processor> processors_;
  JobPlace place_;
  std::mutex mutex_;  // what follows
  std::map<std::string, Entry> jobs_;
  std::map<std::string, Finished> finished_;
  std::map<std::string, Entry> opening_;                                                 // without a job yet
  std::map<std::pair<std::string, std::string>, std::weak_ptr<NormGroup>> norm_groups_;  // by name and nonce
  std::condition_variable opened_;
  bool stops_ = false;
  std::atomic<std::uint64_t> refused_{0};
  std::condition_variable stopped_;
  std::thread reaper_;
  std::unique_ptr<control::ControlServer> server_;
};

}  // namespace

Result<std::unique_ptr<Hub>> Hub::open(HubOptions options) {
  TESSER_ASSIGN_OR_RETURN(std::vector<Processor> processors, choose_processors(options.processors));
  auto hub = std::make_unique<HubServer>(std::move(options), std::move(processors));
  TESSER_RETURN_IF_ERROR(hub->serve());
  return hub;
}

}  // namespace tesser::hub
