// How the devices of ranks find each other.
#include <algorithm>
#include <array>

#include "backends/cuda/params/ranks.h"
#include "backends/cuda/target/device.h"
#include "base/error.h"

namespace octet::cuda {
namespace {

constexpr int64_t kBoardBytes = 4096;  // of launch/ranks.h

// Message of a rank to all others.
struct Word {
  int32_t number = 0;
  char problem[252] = {};  // empty: none
};

std::vector<Word> gather_words(const RankExchange& ranks, int number, const std::string& problem) {
  Word own{.number = number};
  problem.copy(own.problem, sizeof(own.problem) - 1);
  std::vector<Word> all(static_cast<size_t>(ranks.n_ranks));
  ranks.all_gather(&own, all.data(), sizeof(own));
  return all;
}
std::string dotted(int number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}
// "rank 1: ..."; empty: no rank has a problem.
std::string first_problem(const std::vector<Word>& words) {
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].problem[0] != 0) return fmt::format("rank {}: {}", rank, words[rank].problem);
  }
  return "";
}

// Addresses and sizes, as the module takes them.
struct Regions {
  std::vector<void*> own;
  std::vector<int64_t> bytes;

  explicit Regions(const std::vector<DeviceMemory*>& shared) {
    for (DeviceMemory* memory : shared) {
      own.push_back(memory->data());
      bytes.push_back(memory->bytes());
    }
  }
  OctetCudaRanks with(const uint8_t* handles) const {
    return {.n_regions = static_cast<int32_t>(own.size()),
            .reserved = 0,
            .own = own.data(),
            .bytes = bytes.data(),
            .handles = handles};
  }
};

}  // namespace

bool CudaDevice::look(void* device, int64_t progress) {
  auto& self = *static_cast<CudaDevice*>(device);
  const std::lock_guard lock(self.mutex_);
  if (self.failure_ == nullptr && self.ranks_.look) {
    try {
      self.ranks_.look(progress);
    } catch (const Error&) {
      self.failure_ = std::current_exception();
    }
  }
  return self.failure_ == nullptr;
}

// Handles of this host's ranks. Every rank takes part, whether its own memory can be shared or not.
std::vector<uint8_t> CudaDevice::gather_handles(const std::vector<DeviceMemory*>& shared) const {
  const size_t n_bytes = shared.size() * OCTET_CUDA_HANDLE_BYTES;
  std::vector<uint8_t> own(n_bytes), all(n_bytes * static_cast<size_t>(ranks_.n_ranks));
  std::string problem;
  for (size_t i = 0; i < shared.size() && problem.empty(); ++i) {
    if (module_->api().share(shared[i]->data(), own.data() + i * OCTET_CUDA_HANDLE_BYTES) != 0)
      problem = module_->api().last_error();
  }
  problem = first_problem(gather_words(ranks_, 0, problem));
  if (!problem.empty()) throw Error(ErrorCode::device, "[ranks] {}", problem);
  ranks_.all_gather(own.data(), all.data(), static_cast<int64_t>(n_bytes));
  const size_t of_host = n_bytes * static_cast<size_t>(n_local_);
  const auto first = all.begin() + ranks_.rank / n_local_ * static_cast<int64_t>(of_host);
  return {first, first + static_cast<int64_t>(of_host)};
}

void CudaDevice::call_join(const uint8_t* handles, const uint8_t* nccl_id) {
  const Regions board({board_.get()});
  const OctetCudaJoin join{.rank = ranks_.rank,
                           .n_ranks = ranks_.n_ranks,
                           .n_local = n_local_,
                           .reserved = 0,
                           .board = board.with(handles),
                           .nccl_id = nccl_id,
                           .look = look,
                           .looker = this};
  check(module_->api().join(&join));
}

std::string CudaDevice::find_unreached() {
  const bool has_hosts = ranks_.n_hosts > 1;
  const int n_local = has_hosts ? ranks_.ranks_a_host : ranks_.n_ranks;
  if (n_local < 2) return fmt::format("they are of {} hosts", ranks_.n_hosts);
  if (has_hosts && ranks_.is_flat)
    return fmt::format("they are of {} hosts, and parallel.strict adds up all in their order",
                       ranks_.n_hosts);
  if (n_local > kMaxRanks)
    return fmt::format("a host has {} of them, {} at most reach each other's memory", n_local,
                       kMaxRanks);
  n_local_ = n_local;
  std::string problem;
  try {
    call_join(gather_handles({board_.get()}).data(), nullptr);
  } catch (const Error& error) {
    problem = error.what();
  }
  problem = first_problem(gather_words(ranks_, 0, problem));
  if (!problem.empty()) n_local_ = 1;
  return problem;
}

void CudaDevice::join_by_nccl(const std::string& why) {
  const OctetCudaApi& api = module_->api();
  OctetCudaLibrary library{};
  check(api.nccl_library(&library));
  std::string lacks;
  if (library.problem[0] != 0)
    lacks = fmt::format(
        "expected NCCL (OCTET_NCCL, or libnccl.so.2 of NVIDIA's package nvidia-nccl-cu13), got {}",
        library.problem);
  const std::vector<Word> words = gather_words(ranks_, library.number, lacks);
  if (const std::string problem = first_problem(words); !problem.empty())
    throw Error(ErrorCode::device, "[ranks] {}", problem);
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].number == words[0].number) continue;
    throw Error(ErrorCode::device,
                "[ranks] NCCL: expected one version on all ranks, got {} on rank 0 and {} on rank "
                "{} (OCTET_NCCL)",
                dotted(words[0].number), dotted(words[rank].number), rank);
  }
  using Id = std::array<uint8_t, OCTET_CUDA_NCCL_ID_BYTES>;
  Id own{};
  std::vector<Id> ids(words.size());
  // Ranks of equal number on their hosts meet; where NCCL moves everything, each counts as a host.
  const bool has_levels = n_local_ > 1;
  if (ranks_.rank < n_local_) check(api.nccl_id(own.data()));
  ranks_.all_gather(own.data(), ids.data(), sizeof(own));
  std::vector<uint8_t> handles;
  if (has_levels) handles = gather_handles({board_.get()});
  const int64_t before = used_bytes();
  call_join(has_levels ? handles.data() : nullptr,
            ids[static_cast<size_t>(ranks_.rank % n_local_)].data());
  const int64_t taken = std::max<int64_t>(0, used_bytes() - before);
  info_.free_bytes = std::max<int64_t>(0, info_.free_bytes - taken);
  const std::string nccl = fmt::format("NCCL {} ({})", library.version, library.file);
  const std::string memory = fmt::format("{} MiB of each GPU", taken >> 20);
  transport_ =
      has_levels
          ? fmt::format("each reads the others' memory within {} hosts of {}, {} between them, {}",
                        ranks_.n_hosts, n_local_, nccl, memory)
          : fmt::format("{}, {}{}", nccl, memory, why.empty() ? "" : ": " + why);
}

void CudaDevice::join(const RankExchange& ranks) {
  ranks_ = ranks;
  if (!transport_.empty() || ranks.n_ranks == 1) return;
  board_ = allocate(kBoardBytes);
  fill_zero(board_->data(), kBoardBytes);
  synchronize();
  const bool tries_peers = ranks.transport != RankTransport::nccl;
  const std::string unreached = tries_peers ? find_unreached() : "parallel.transport says so";
  if (unreached.empty() && ranks.n_hosts == 1) {
    transport_ = "each reads the others' memory";
    return;
  }
  if (ranks.transport == RankTransport::peer)
    throw Error(ErrorCode::device,
                "[ranks] parallel.transport: expected nccl or auto where GPUs do not reach each "
                "other's memory, got peer ({})",
                unreached.empty() ? fmt::format("they are of {} hosts", ranks.n_hosts) : unreached);
  join_by_nccl(unreached);
}

void CudaDevice::connect(const RankExchange& ranks, const std::vector<DeviceMemory*>& shared) {
  join(ranks);
  if (ranks.n_ranks == 1) return;
  std::vector<uint8_t> handles;
  if (n_local_ > 1) handles = gather_handles(shared);
  const Regions regions(shared);
  const OctetCudaRanks links = regions.with(n_local_ > 1 ? handles.data() : nullptr);
  check(module_->api().connect(&links));
}

DeviceLibrary CudaDevice::rank_library() {
  OctetCudaLibrary found{};
  check(module_->api().nccl_library(&found));
  if (found.problem[0] != 0)
    return {"NCCL", "", fmt::format("{}: ranks of several hosts cannot train", found.problem)};
  return {"NCCL", fmt::format("{} ({})", found.version, found.file), ""};
}

}  // namespace octet::cuda
