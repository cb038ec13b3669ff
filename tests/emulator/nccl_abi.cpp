// The ABI that the module takes for NCCL's is so, where NCCL's header is found.
#include "backends/cuda/kernels/ranks/nccl_api.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace ours = octet::cuda::nccl;

// Enums are passed as ints, and the rest by the same words.
template <typename Theirs>
constexpr bool is_int() {
  return sizeof(Theirs) == sizeof(int);
}
static_assert(is_int<ncclResult_t>() && is_int<ncclDataType_t>() && is_int<ncclRedOp_t>());
static_assert(int{ours::success} == int{ncclSuccess} &&
              int{ours::remote_error} == int{ncclRemoteError});
static_assert(int{ours::in_progress} == int{ncclInProgress});
static_assert(int{ours::int8} == int{ncclInt8} && int{ours::uint8} == int{ncclUint8});
static_assert(int{ours::uint32} == int{ncclUint32} && int{ours::int64} == int{ncclInt64});
static_assert(int{ours::sum} == int{ncclSum} && int{ours::max} == int{ncclMax});
static_assert(sizeof(ours::UniqueId) == sizeof(ncclUniqueId));
static_assert(ours::Config::kDefault == NCCL_CONFIG_UNDEF_INT);
static_assert(sizeof(ours::Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(ours::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(ours::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(ours::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(ours::Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(ours::Config, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(ours::Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(ours::Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(ours::Config, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(ours::kMinVersion == NCCL_VERSION(2, 19, 0));
static_assert(
    std::is_same_v<decltype(&ncclSend), ncclResult_t (*)(const void*, size_t, ncclDataType_t, int,
                                                         ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&ncclAllGather),
                             ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                              ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&ncclAllReduce),
                             ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                              ncclRedOp_t, ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&ncclCommInitRankConfig),
                             ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*)>);
#endif
