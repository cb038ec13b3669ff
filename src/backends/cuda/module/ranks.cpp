#include "backends/cuda/module/ranks.h"

#include <cstdio>
#include <cstring>

#include "backends/cuda/kernels/ranks/transport.h"
#include "backends/cuda/module/context.h"

namespace octet::cuda {
namespace {

constexpr cudaMemcpyKind kAnyWay = cudaMemcpyDefault;

void copy_text(char* to, size_t size, const std::string& text) {
  std::snprintf(to, size, "%s", text.c_str());
}

// Regions of this rank, and where those of the others of its host are.
std::vector<RankLinks::Region> open_regions(const OctetCudaRanks& ranks) {
  std::vector<RankLinks::Region> regions;
  const RankLinks& links = context().links;
  for (int region = 0; region < ranks.n_regions; ++region) {
    RankLinks::Region shared{.own = static_cast<std::byte*>(ranks.own[region]),
                             .bytes = ranks.bytes[region]};
    for (int local = 0; local < links.n_local; ++local) {
      auto& of_rank = shared.of[static_cast<size_t>(local)];
      if (local == links.local()) {
        of_rank = shared.own;
        continue;
      }
      cudaIpcMemHandle_t handle{};
      std::memcpy(&handle,
                  ranks.handles + (local * ranks.n_regions + region) * OCTET_CUDA_HANDLE_BYTES,
                  sizeof(handle));
      void* address = nullptr;
      check(cudaIpcOpenMemHandle(&address, handle, cudaIpcMemLazyEnablePeerAccess),
            "reaching the memory of another rank's GPU");
      of_rank = static_cast<std::byte*>(address);
    }
    regions.push_back(shared);
  }
  return regions;
}

// The last word of this rank may be old. Where another one has failed, the next wait says so.
void say_idle() {
  const RankLinks& links = context().links;
  links.progress.is_idle = true;
  if (links.look != nullptr) links.look(links.looker, links.progress.value());
}

// Every kind of call once, so that all connections are there and have their memory.
void try_between_hosts() {
  Context& c = context();
  Transport& transport = *c.links.transport;
  BetweenHosts& between = *transport.between;
  const std::span<std::byte> all = between.staging();
  const int n = c.links.n_hosts();
  const int64_t piece = std::ssize(all) / (2 * n) / 256 * 256;
  std::vector<Exchange> parts;
  for (int host = 0; host < n; ++host) {
    if (host == c.links.host()) continue;
    parts.push_back({.host = host,
                     .give = all.data() + host * piece,
                     .give_bytes = piece,
                     .take = all.data() + (n + host) * piece,
                     .take_bytes = piece});
  }
  transport.begin(1, c.transfers);
  between.exchange(parts, c.transfers);
  between.all_gather(all.data(), all.data() + n * piece, piece, c.transfers);
  between.max_of(all.data(), all.data(), 1, nccl::uint32, c.transfers);
  between.max_of(all.data(), all.data(), 1, nccl::uint8, c.transfers);
  between.add_sums(c.links.board()->sums[0], c.transfers);
  transport.end(c.transfers);
  await(Streams::both);
}

}  // namespace

void await(Streams streams) {
  Context& c = context();
  if (c.links.n_ranks == 1) {
    if (streams == Streams::both)
      check(cudaStreamSynchronize(c.transfers), "moving data between ranks");
    return check(cudaStreamSynchronize(c.stream), "running kernels");
  }
  const cudaStream_t both[] = {c.stream, c.transfers};
  await_ranks(c.links, std::span(both).first(streams == Streams::both ? 2 : 1), c.saves);
  say_idle();
}

int share(void* address, uint8_t* handle) {
  return guarded([&] {
    static_assert(sizeof(cudaIpcMemHandle_t) == OCTET_CUDA_HANDLE_BYTES);
    check(cudaIpcGetMemHandle(reinterpret_cast<cudaIpcMemHandle_t*>(handle), address),
          "sharing memory with other ranks");
  });
}

int nccl_library(OctetCudaLibrary* library) {
  return guarded([&] {
    *library = {};
    try {
      const nccl::Api& api = nccl::open(context().nccl);
      library->number = api.version;
      copy_text(library->version, sizeof(library->version), nccl::version_text(api.version));
      copy_text(library->file, sizeof(library->file), api.file);
    } catch (const ModuleError& error) {
      copy_text(library->problem, sizeof(library->problem), error.what());
    }
  });
}

int nccl_id(uint8_t* id) {
  return guarded([&] {
    nccl::UniqueId made{};
    const nccl::Api& api = nccl::open(context().nccl);
    if (const nccl::Result result = api.get_unique_id(&made); result != nccl::success)
      throw ModuleError(std::string("[ranks] NCCL: ") + api.error_string(result));
    static_assert(sizeof(made) == OCTET_CUDA_NCCL_ID_BYTES);
    std::memcpy(id, &made, sizeof(made));
  });
}

int leave() {
  return guarded([] {
    RankLinks& links = context().links;
    links.transport = nullptr;
    links.look = nullptr;
    links.regions.clear();
    links.rank = 0;
    links.n_ranks = links.n_local = 1;
    cudaGetLastError();  // of memory that cannot be reached
  });
}

int join(const OctetCudaJoin* join) {
  const int failed = guarded([&] {
    RankLinks& links = context().links;
    if (join->n_local > kMaxRanks || join->n_ranks % join->n_local != 0)
      throw ModuleError("[cuda] expected hosts of at most " + std::to_string(kMaxRanks) +
                        " ranks, got " + std::to_string(join->n_local) + " of " +
                        std::to_string(join->n_ranks) + " ranks on each");
    links.rank = join->rank;
    links.n_ranks = join->n_ranks;
    links.n_local = join->n_local;
    links.look = join->look;
    links.looker = join->looker;
    links.transport = nullptr;
    if (links.progress.run == nullptr) {
      void* word = nullptr;
      check(cudaHostAlloc(&word, sizeof(uint32_t), cudaHostAllocDefault), "a word for progress");
      links.progress.run = static_cast<uint32_t*>(word);
      *links.progress.run = 0;
    }
    links.regions = open_regions(join->board);
    const uint32_t one = 1;
    check(cudaMemcpy(&links.board()->one, &one, sizeof(one), kAnyWay),
          "preparing meetings of ranks");
    links.transport = std::make_shared<Transport>(Transport{.links = links});
    if (links.n_local > 1) links.transport->within = std::make_unique<WithinHost>(links);
    if (join->nccl_id == nullptr) return;
    nccl::UniqueId id{};
    std::memcpy(&id, join->nccl_id, sizeof(id));
    links.transport->between =
        std::make_unique<BetweenHosts>(links, nccl::open(context().nccl), id);
    try_between_hosts();
  });
  if (failed != 0) leave();
  return failed;
}

int connect(const OctetCudaRanks* ranks) {
  return guarded([&] {
    std::vector<RankLinks::Region>& regions = context().links.regions;
    regions.resize(1);
    for (const RankLinks::Region& one : open_regions(*ranks)) regions.push_back(one);
  });
}

int await_ranks(int32_t milliseconds) {
  return guarded([&] {
    const Context& c = context();
    const cudaStream_t both[] = {c.stream, c.transfers};
    await_ranks(c.links, both, c.saves, std::chrono::milliseconds(milliseconds));
    say_idle();
  });
}

}  // namespace octet::cuda
