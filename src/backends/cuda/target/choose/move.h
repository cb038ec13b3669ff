// Which kernels element-wise ops and copies launch: pure functions of the parameters.
#pragma once

#include <span>

#include "backends/cuda/params/move.h"
#include "backends/cuda/params/pictures.h"
#include "backends/cuda/target/choose/kernel_names.h"

namespace octet::cuda {

constexpr void choose_kernels(AxpbyParams&) {}
constexpr void choose_kernels(FillParams&) {}
constexpr void choose_kernels(IotaParams&) {}
constexpr void choose_kernels(CacheWriteParams&) {}
void choose_kernels(ElementParams& p);
// With the fill that stands before them, of no elements where there is none.
void choose_kernels(const FillParams& fill, std::span<StridedCopy> copies);

KernelNames launches_of(const AxpbyParams& p);
KernelNames launches_of(const FillParams& p);
KernelNames launches_of(const IotaParams& p);
KernelNames launches_of(const CacheWriteParams& p);
KernelNames launches_of(const ElementParams& p);
KernelNames launches_of(const FillParams& fill, std::span<const StridedCopy> copies);

}  // namespace octet::cuda
