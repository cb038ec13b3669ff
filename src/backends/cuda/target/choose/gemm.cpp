#include "backends/cuda/target/choose/gemm.h"

#include "backends/cuda/params/gemm_scratch.h"

namespace octet::cuda {
namespace {

constexpr std::string_view kLibrary = "cublasLt", kCast = "wide_elements";

// In runs of rows where sums are made apart.
void add_product(const GemmParams& p, KernelNames& names) {
  if (!has_own_sums(p)) return names.push_back(kLibrary);
  const int64_t n_runs = launches_for(p.m, rows_of_sums(p));
  for (int64_t i = 0; i < n_runs; ++i) {
    if (p.has_c && p.c != Dtype::f32) names.push_back(kCast);
    names.push_back(kLibrary);
    if (p.y != Dtype::f32) names.push_back(kCast);
  }
}

std::string_view decoder_of(const GemmParams& p, const GemmBlocks& blocks) {
  const bool is_exact = blocks.none() && decoded_type(p) != Dtype::f32;
  return is_exact ? "decode_codes" : "dequantize_codes";
}

// Data that are not K-major are turned, and scales placed as the library reads them.
void add_blocks(const GemmParams& p, KernelNames& names) {
  const bool k_major_a = !p.trans_a, k_major_b = p.trans_b;
  for (const bool k_major : {k_major_a, k_major_b}) {
    if (!k_major) names.emplace_back("turn_bytes");
  }
  const auto place = [&](bool k_major, const GemmBlocks& blocks, Dtype scales) {
    const bool is_ready = !k_major && !is_square(blocks) && scales == Dtype::f32;
    if (!is_ready) names.emplace_back("place_scales");
  };
  place(k_major_a, p.a_blocks, p.a_scales);
  place(k_major_b, p.b_blocks, p.b_scales);
  names.push_back(kLibrary);
}

}  // namespace

KernelNames launches_of(const GemmParams& p) {
  KernelNames names;
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batch == 0) return names;
  switch (p.kind) {
    case GemmKind::few_rows:
      return {"few_rows"};
    case GemmKind::weight_only:
      return {"weight_only"};
    case GemmKind::high_precision:
      if (scales_high_precision(p)) names.emplace_back("make_alpha_beta");
      add_product(p, names);
      break;
    case GemmKind::fp8:
    case GemmKind::by_rows:
      add_product(p, names);
      break;
    case GemmKind::blocks:
      add_blocks(p, names);
      break;
    case GemmKind::decoded:
      if (has_whole_scale(p)) names.emplace_back("make_alpha_beta");
      names.push_back(decoder_of(p, p.a_blocks));
      names.push_back(decoder_of(p, p.b_blocks));
      add_product(p, names);
      break;
  }
  return names;
}

}  // namespace octet::cuda
