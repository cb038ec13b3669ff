// Collective ops of ranks, where there is one: shards are padded wholes.
#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/kernels.h"
#include "base/error.h"

namespace octet::reference {
namespace {

void expect_alone(const RefCall& call) {
  const auto* collective = std::get_if<CollectiveAttrs>(&call.attrs);
  CHECK((collective != nullptr ? collective->ranks : std::get<ShardAttrs>(call.attrs).ranks) == 1);
}

// The part of x that there is room for, then zeros.
void fit(std::span<const double> x, std::span<double> y) {
  const size_t n = std::min(x.size(), y.size());
  std::copy_n(x.begin(), n, y.begin());
  std::fill(y.begin() + static_cast<std::ptrdiff_t>(n), y.end(), 0.0);
}

void add_into(const RefCall& call) {
  expect_alone(call);
  const auto y = call.out[Reduce::y].data;
  fit(call.in[Reduce::x].data, y);
  for (const double scale : optional(call.in, Reduce::scale)) {
    for (double& e : y) e = static_cast<float>(e) * static_cast<float>(scale);
  }
  const auto into = optional(call.in, Reduce::into);
  for (size_t i = 0; i < into.size(); ++i)
    y[i] = static_cast<double>(static_cast<float>(into[i]) + static_cast<float>(y[i]));
}

}  // namespace

void take_shard(const RefCall& call) {
  expect_alone(call);
  fit(call.in[Unary::x].data, call.out[Unary::y].data);
}
void all_gather(const RefCall& call) {
  expect_alone(call);
  fit(call.in[Unary::x].data, call.out[Unary::y].data);
}
void reduce_scatter(const RefCall& call) {
  CHECK(!std::get<CollectiveAttrs>(call.attrs).squares);  // of one rank there are none
  add_into(call);
}
void all_reduce(const RefCall& call) {
  add_into(call);
}
void sharded_norm(const RefCall& call) {
  expect_alone(call);
  double sum = 0;
  for (size_t i = GlobalNorm::gradient; i < call.in.size(); ++i) {
    for (const double g : call.in[i].data) sum += g * g;
  }
  const double norm = std::sqrt(sum), clip = call.in[GlobalNorm::clip].data[0];
  call.out[GlobalNorm::norm].data[0] = norm;
  call.out[GlobalNorm::grad_scale].data[0] = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1;
  call.out[GlobalNorm::found_nonfinite].data[0] = std::isfinite(norm) ? 0 : 1;
}

}  // namespace octet::reference
