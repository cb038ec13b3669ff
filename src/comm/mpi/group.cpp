#include "comm/mpi/group.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "comm/mpi/module_api.h"
#include "comm/tcp/join.h"
#include "comm/tcp/socket.h"

namespace octet::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPiece = int64_t{64} << 20;  // MPI counts with int
// How long a rank looks before it sleeps between looks: as long as the bytes may take, at 1 GB/s.
constexpr std::chrono::microseconds kEager{100}, kPause{50};
constexpr std::chrono::seconds kLastWords{1};

// The module stays open as long as the process: MPI libraries cannot be closed.
const OctetMpiApi* open_module(const std::string& path, std::string& problem) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    problem = why == nullptr ? "it cannot be opened" : why;
    return nullptr;
  }
  const auto api = reinterpret_cast<const OctetMpiApi* (*)()>(::dlsym(library, "octet_mpi_api"));
  if (api != nullptr && api()->version == OCTET_MPI_API_VERSION) return api();
  problem = path + " is of another version of octet";
  return nullptr;
}

struct Call {
  int64_t kind = 0, bytes = 0, root = 0;
  bool operator==(const Call&) const = default;
  std::string text() const {
    constexpr const char* kNames[] = {"all_gather", "all_to_all", "broadcast"};
    return fmt::format("{} of {} bytes", kNames[kind], bytes);
  }
};

class MpiGroup : public Group {
 public:
  MpiGroup(const OctetMpiApi& api, int rank, int size) : api_(api), rank_(rank), size_(size) {}
  ~MpiGroup() override {
    if (!has_failed_) {
      api_.finish();
      return;
    }
    // Launchers end all ranks when the first one ends so: each has the time to say why.
    std::this_thread::sleep_for(kLastWords);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void look(int64_t progress) override { control_->look(progress); }
  void watch(std::unique_ptr<tcp::Control> control) { control_ = std::move(control); }

  void all_gather(const std::byte* own, std::byte* all, int64_t bytes) override {
    move({OCTET_MPI_ALL_GATHER, 0, own, all, bytes, bytes});
  }
  void all_to_all(const std::byte* send, std::byte* received, int64_t bytes) override {
    move({OCTET_MPI_ALL_TO_ALL, 0, send, received, bytes, bytes});
  }
  void broadcast(std::byte* data, int64_t bytes, int root) override {
    move({OCTET_MPI_BROADCAST, root, data, data, bytes, bytes});
  }
  bool fail(const std::string& why) override {
    has_failed_ = true;
    return control_ != nullptr && control_->fail(rank_, why);
  }

 private:
  // In pieces, after all have said which collective it is.
  void move(const OctetMpiMove& whole) {
    const Call own{whole.kind, whole.bytes, whole.root};
    std::vector<Call> calls(static_cast<size_t>(size_));
    move_piece({OCTET_MPI_ALL_GATHER, 0, &own, calls.data(), sizeof(Call), sizeof(Call)});
    const auto other =
        std::find_if(calls.begin(), calls.end(), [&](const Call& call) { return call != own; });
    if (other != calls.end())
      throw_failed(fmt::format("it called {}, rank {} {}", own.text(), other - calls.begin(),
                               other->text()));
    for (int64_t first = 0; first < whole.bytes; first += kPiece) {
      OctetMpiMove piece = whole;
      piece.bytes = std::min(kPiece, whole.bytes - first);
      piece.send = static_cast<const std::byte*>(whole.send) + first;
      piece.received = static_cast<std::byte*>(whole.received) + first;
      move_piece(piece);
    }
  }
  void move_piece(const OctetMpiMove& piece) {
    throw_if_failed();
    check(api_.begin(&piece));
    const auto eager_until = Clock::now() + kEager + std::chrono::nanoseconds(piece.bytes);
    int32_t is_done = 0;
    while (is_done == 0) {
      check(api_.is_done(&is_done));
      if (is_done != 0) return;
      throw_if_failed();
      if (Clock::now() < eager_until) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPause);
      }
    }
  }
  void check(int code) {
    if (code != 0) throw_failed(fmt::format("MPI: {}", api_.problem()));
  }
  void throw_if_failed() {
    if (control_ == nullptr) return;
    try {
      control_->throw_if_failed();
    } catch (const Error&) {
      has_failed_ = true;
      throw;
    }
  }
  [[noreturn]] void throw_failed(const std::string& why) {
    fail(why);
    throw_if_failed();
    throw Error(ErrorCode::device, "[ranks] {}", why);
  }

  const OctetMpiApi& api_;
  const int rank_, size_;
  std::unique_ptr<tcp::Control> control_;
  bool has_failed_ = false;
};

// Place where rank 0 takes the connections of those that watch it, as all learn by MPI.
tcp::Place meeting_point(MpiGroup& group, const tcp::Socket& listener) {
  tcp::Place place;
  place.rank = group.rank();
  place.size = group.size();
  std::string text;
  if (group.rank() == 0) {
    std::random_device random;
    text = fmt::format("{} {} {}", tcp::port_of(listener),
                       (static_cast<uint64_t>(random()) << 32) | random(),
                       fmt::join(tcp::addresses_of_this_host(), " "));
  }
  auto n_bytes = static_cast<int64_t>(text.size());
  group.broadcast(reinterpret_cast<std::byte*>(&n_bytes), sizeof(n_bytes), 0);
  text.resize(static_cast<size_t>(n_bytes));
  group.broadcast(reinterpret_cast<std::byte*>(text.data()), n_bytes, 0);
  std::istringstream words(text);
  words >> place.port >> place.token;
  for (std::string address; words >> address;) place.addresses.push_back(address);
  return place;
}

}  // namespace

Library find_library(const std::string& module) {
  Library found;
  const OctetMpiApi* api = open_module(module, found.problem);
  if (api == nullptr) return found;
  found.version = api->library();
  found.version = found.version.substr(0, found.version.find_first_of(",\n"));
  return found;
}

std::unique_ptr<Group> join_ranks(const std::string& module, std::chrono::milliseconds patience,
                                  const tcp::ControlOptions& options) {
  std::string problem;
  const OctetMpiApi* api = open_module(module, problem);
  if (api == nullptr) throw Error(ErrorCode::device, "[ranks] MPI: {}", problem);
  int32_t rank = 0, size = 0;
  if (api->start(&rank, &size) != 0)
    throw Error(ErrorCode::device, "[ranks] MPI: {}", api->problem());
  auto group = std::make_unique<MpiGroup>(*api, rank, size);
  tcp::Socket listener;
  if (rank == 0) listener = tcp::listen_at("::", 0);
  tcp::Place place = meeting_point(*group, listener);
  place.patience = patience;
  group->watch(std::make_unique<tcp::Control>(rank, tcp::join_star(place, listener), options));
  return group;
}

}  // namespace octet::mpi
