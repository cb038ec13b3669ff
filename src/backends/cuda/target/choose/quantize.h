// Which kernels quantizers, maxima and scales launch: pure functions of the parameters.
#pragma once

#include "backends/cuda/params/quantize.h"
#include "backends/cuda/target/choose/kernel_names.h"

namespace octet::cuda {

// Fill in what is launched, where there is a choice.
constexpr void choose_kernels(AmaxParams&) {}
constexpr void choose_kernels(AnyOfParams&) {}
constexpr void choose_kernels(ScaleParams&) {}
constexpr void choose_kernels(PeriodicScaleParams&) {}
constexpr void choose_kernels(DequantizeParams&) {}
void choose_kernels(QuantizeParams& p);
void choose_kernels(AmaxQuantizeParams& p);
void choose_kernels(GroupParams& p);
void choose_kernels(BlockParams& p);
void choose_kernels(FakeQuantizeParams& p);

KernelNames launches_of(const AmaxParams& p);
KernelNames launches_of(const AnyOfParams& p);
KernelNames launches_of(const ScaleParams& p);
KernelNames launches_of(const PeriodicScaleParams& p);
KernelNames launches_of(const DequantizeParams& p);
KernelNames launches_of(const QuantizeParams& p);
KernelNames launches_of(const AmaxQuantizeParams& p);
KernelNames launches_of(const GroupParams& p);
KernelNames launches_of(const BlockParams& p);
KernelNames launches_of(const FakeQuantizeParams& p);

}  // namespace octet::cuda
