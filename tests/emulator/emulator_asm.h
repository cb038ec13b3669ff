// The instructions of the kernels' inline assembly, by name; operands in the order of the
// assembly's lists. Source of what each lane holds: PTX ISA 8, "Matrix fragments for mma.m16n8k16"
// and "ldmatrix".
#pragma once

namespace emulator {

inline float flushed(float x) {
  return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
inline void ex2_approx_ftz_f32(float& y, float x) {
  y = flushed(std::exp2(flushed(x)));
}
inline void lg2_approx_ftz_f32(float& y, float x) {
  y = std::log2(flushed(x));
}
inline void rcp_approx_ftz_f32(float& y, float x) {
  y = flushed(1 / flushed(x));
}
inline void sqrt_approx_ftz_f32(float& y, float x) {
  y = std::sqrt(flushed(x));
}
inline void max_NaN_f32(float& y, float x) {
  y = std::isnan(y) || std::isnan(x) ? NAN : std::max(y, x);
}

inline void cvt_rn_bf16x2_f32(uint32_t& y, float high, float low) {
  y = static_cast<uint32_t>(bits_of(__floats2bfloat162_rn(low, high)));
}
inline void cvt_rn_f16x2_f32(uint32_t& y, float high, float low) {
  y = static_cast<uint32_t>(bits_of(__floats2half2_rn(low, high)));
}
inline void cvt_rn_f16x2_e4m3x2(uint32_t& low, uint32_t& high, uint32_t codes) {
  const auto two = [](uint32_t pair) {
    uint32_t halves = 0;
    for (int i = 0; i < 2; ++i) {
      const auto code = static_cast<__nv_fp8_storage_t>(pair >> 8 * i & 0xFF);
      halves |= uint32_t{__nv_cvt_fp8_to_halfraw(code, __NV_E4M3).x} << 16 * i;
    }
    return halves;
  };
  low = two(codes & 0xFFFF);
  high = two(codes >> 16);
}

inline void prefetch_global_L2(const void*) {}
inline void cp_async_commit_group() {}
inline void cp_async_wait_all() {}
inline void cp_async_wait_group(int /*n*/ = 0) {}
// Copies at once. Bytes beyond `there` become zeros.
inline void copy_to_shared(uint32_t to, const void* from, int bytes, int there) {
  auto* const at = static_cast<char*>(shared_at(to));
  expect_aligned(at, static_cast<size_t>(bytes));
  if (there > 0) expect_aligned(from, static_cast<size_t>(bytes));
  for (int i = 0; i < bytes; ++i) at[i] = i < there ? static_cast<const char*>(from)[i] : '\0';
}
inline void cp_async_cg_shared_global(uint32_t to, const void* from, int there = 16) {
  copy_to_shared(to, from, 16, there);
}
inline void cp_async_cg_shared_global_L2_256B(uint32_t to, const void* from) {
  copy_to_shared(to, from, 16, 16);
}
// `there`: of 4 bytes, or the size itself.
inline void cp_async_ca_shared_global(uint32_t to, const void* from, int there) {
  copy_to_shared(to, from, std::max(there, 4), there);
}

// Lane l gives row l % 8 of block l / 8, of eight elements of 16 bits. It gets of each block the
// two elements 2 (l % 4) of row l / 4; transposed, of the column.
inline void load_matrices(uint32_t (&x)[4], uint32_t row, bool transposed) {
  const Brought& rows = exchange(~0u, row);
  const uint32_t l = lane();
  for (uint32_t block = 0; block < 4; ++block) {
    uint16_t two[2];
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t r = transposed ? l % 4 * 2 + i : l / 4, c = transposed ? l / 4 : l % 4 * 2 + i;
      const void* from = shared_at(static_cast<uint32_t>(rows.at[block * 8 + r]));
      expect_aligned(from, 16);
      std::memcpy(&two[i], static_cast<const uint16_t*>(from) + c, 2);
    }
    x[block] = uint32_t{two[1]} << 16 | two[0];
  }
  wait_for_lanes(~0u);  // what was read may be written now
}
inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& a, uint32_t& b, uint32_t& c,
                                                     uint32_t& d, uint32_t row) {
  uint32_t x[4];
  load_matrices(x, row, false);
  a = x[0], b = x[1], c = x[2], d = x[3];
}
inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t& a, uint32_t& b, uint32_t& c,
                                                           uint32_t& d, uint32_t row) {
  uint32_t x[4];
  load_matrices(x, row, true);
  a = x[0], b = x[1], c = x[2], d = x[3];
}

// c += a b of 16 x 16 by 16 x 8. Of lane l, g = l / 4 and t = l % 4: a's registers are rows g,
// g + 8, g, g + 8 and columns 2 t, 2 t, 2 t + 8, 2 t + 8 with the next; b's are rows 2 t and
// 2 t + 8 with the next, column g; c's are rows g, g, g + 8, g + 8 and columns 2 t, 2 t + 1.
template <typename Half>
void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const uint32_t g = lane() / 4, t = lane() % 4;
  float rows[2][16], cols[2][16];  // of a, g and g + 8; of b, 2 t and 2 t + 1
  // The elements of a line that lanes 4 line to 4 line + 3 hold in this register.
  const auto read = [](const Brought& all, uint32_t line, float* to) {
    for (uint32_t i = 0; i < 8; ++i) {
      const uint64_t two = all.at[4 * line + i / 2];
      to[i] = static_cast<float>(value_of<Half>(two >> 16 * (i % 2) & 0xFFFF));
    }
  };
  for (uint32_t k = 0; k < 4; ++k) read(exchange(~0u, a[k]), g, rows[k % 2] + k / 2 * 8);
  for (uint32_t k = 0; k < 2; ++k) {
    const Brought& all = exchange(~0u, b[k]);
    for (uint32_t i = 0; i < 2; ++i) read(all, 2 * t + i, cols[i] + k * 8);
  }
  for (uint32_t i = 0; i < 4; ++i) {
    double sum = c[i];
    for (uint32_t k = 0; k < 16; ++k) sum += static_cast<double>(rows[i / 2][k]) * cols[i % 2][k];
    c[i] = static_cast<float>(sum);
  }
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& c0, float& c1, float& c2,
                                                                float& c3, uint32_t a0, uint32_t a1,
                                                                uint32_t a2, uint32_t a3,
                                                                uint32_t b0, uint32_t b1) {
  float c[4] = {c0, c1, c2, c3};
  multiply<__nv_bfloat16>(c, {a0, a1, a2, a3}, {b0, b1});
  c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& c0, float& c1, float& c2,
                                                              float& c3, uint32_t a0, uint32_t a1,
                                                              uint32_t a2, uint32_t a3, uint32_t b0,
                                                              uint32_t b1) {
  float c[4] = {c0, c1, c2, c3};
  multiply<__half>(c, {a0, a1, a2, a3}, {b0, b1});
  c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];
}

// The same of TF32, m16n8k8: a's registers are rows g, g + 8, g, g + 8 and columns t, t, t + 4,
// t + 4; b's are rows t and t + 4, column g. Low bits of the factors are not read.
inline void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float& c0, float& c1, float& c2,
                                                               float& c3, uint32_t a0, uint32_t a1,
                                                               uint32_t a2, uint32_t a3,
                                                               uint32_t b0, uint32_t b1) {
  const uint32_t g = lane() / 4, t = lane() % 4;
  const auto value = [](uint64_t bits) {
    return value_of<float>(static_cast<uint32_t>(bits) & 0xFFFFE000u);
  };
  double sums[4] = {c0, c1, c2, c3};
  float rows[2][8], cols[2][8];
  const auto read = [&](const Brought& all, uint32_t from, float* low, float* high) {
    for (uint32_t i = 0; i < 4; ++i) {
      low[i] = value(all.at[from + i]);
      high[i] = value(all.at[from + i] >> 32);
    }
  };
  // Two registers at a time.
  read(exchange(~0u, uint64_t{a1} << 32 | a0), 4 * g, rows[0], rows[1]);
  read(exchange(~0u, uint64_t{a3} << 32 | a2), 4 * g, rows[0] + 4, rows[1] + 4);
  const Brought& all = exchange(~0u, uint64_t{b1} << 32 | b0);
  for (uint32_t i = 0; i < 2; ++i) read(all, 4 * (2 * t + i), cols[i], cols[i] + 4);
  for (uint32_t i = 0; i < 4; ++i) {
    for (uint32_t k = 0; k < 8; ++k)
      sums[i] += static_cast<double>(rows[i / 2][k]) * cols[i % 2][k];
  }
  c0 = static_cast<float>(sums[0]), c1 = static_cast<float>(sums[1]);
  c2 = static_cast<float>(sums[2]), c3 = static_cast<float>(sums[3]);
}

}  // namespace emulator
