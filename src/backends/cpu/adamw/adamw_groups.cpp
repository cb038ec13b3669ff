#include "backends/cpu/adamw/adamw_groups.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backends/cpu/adamw/adamw_vectors.h"
#include "backends/cpu/adamw/expanded_codes.h"
#include "backends/cpu/codec/codec.h"
#include "backends/cpu/common/isa.h"
#include "base/error.h"

namespace octet::cpu {
namespace {

constexpr double log2_ratio(double size, float target) {
  return log2_exact(size / static_cast<double>(target));
}

// By the bits of the fraction: log2 of the significand, less that of the target's.
template <Dtype D>
constexpr void add_fraction_table(DecodeTable& table) {
  constexpr FormatRow kRow = format_row(D);
  constexpr int kFractions = 1 << kRow.fraction_bits;
  const Unpacked target = unpack(kRow.amax_target);
  const double significand = target.significand * 0x1p-23;
  table.fraction_bits = kRow.fraction_bits;
  table.exponent_offset = kRow.bias + target.exponent;
  for (int i = 0; i < kFractions; ++i) {
    const double normal = 1.0 + static_cast<double>(i) / kFractions;
    table.part_of_fraction[i] = static_cast<float>(log2_exact(normal / significand));
    table.ratio_of_fraction[i] = static_cast<float>(normal) / static_cast<float>(significand);
    table.ratio_of_fraction[8 + i] =
        static_cast<float>((normal - 1) * 2) / static_cast<float>(significand);
    if (i == 0) continue;  // the code of zero
    table.part_of_fraction[8 + i] = static_cast<float>(log2_exact((normal - 1) * 2 / significand));
  }
}

template <Dtype D>
constexpr DecodeTable make_decode_table() {
  DecodeTable table{};
  for (uint32_t code = 0; code < 256; ++code) {
    const float q = decode<D>(code);
    table.ratio[code] = is_finite(q) ? q / format_row(D).amax_target : q;
    table.whole[code] = kNoPower;
    if (!is_finite(q) || q == 0.0f) continue;
    const double power = log2_ratio(q < 0 ? -static_cast<double>(q) : static_cast<double>(q),
                                    format_row(D).amax_target);
    const int whole = static_cast<int>(power < 0 ? power - 0.5 : power + 0.5);
    table.whole[code] = static_cast<float>(whole);
    const uint32_t part = bits_of(static_cast<float>(power - whole));
    table.part[code] = float_of((part & ~1u) | (q < 0 ? 1u : 0u));
  }
  if constexpr (format_row(D).rule == DecodeRule::ieee) add_fraction_table<D>(table);
  return table;
}
template <Dtype D>
constexpr DecodeTable kDecodeTable = make_decode_table<D>();

// Inputs of encoding and decoding one moment's groups, found once a launch.
struct MomentKernel {
  const MomentPlace& place;
  MomentCoding coding;
  const DecodeTable* table = nullptr;
  Codec codec{};
  ExpandedCodes expanded{};
  const RangeThresholds* thresholds = nullptr;  // of an expanded moment
  AmaxRounding rounding{};                      // takes `first`
  float target = 0, least = 0, log2_least = 0;

  uint32_t meta(const BitRange& range, int64_t first) const {
    const AbsRange values{float_of(range.amax), float_of(range.amin), false};
    const uint32_t up = rounding.up(first);
    return thresholds != nullptr ? expansion_meta(moment_range(values), *thresholds, up)
                                 : moment_meta(coding, values, up);
  }
};

MomentKernel moment_kernel(const MomentPlace& place) {
  const MomentCoding& coding = place.coding;
  MomentKernel kernel{.place = place, .coding = coding};
  if (is_f32_or_bf16(coding.dtype)) return kernel;
  kernel.codec = simd_codec(coding.dtype);
  kernel.rounding = amax_rounding(coding, place.random);
  if (coding.expand) {
    kernel.thresholds = &find_expansion(coding.dtype, coding.moment).thresholds;
    kernel.expanded = expanded_codes(coding.dtype);
  }
  visit_format(coding.dtype, [&]<Dtype D>() {
    if constexpr (is_moment_format(D)) {
      constexpr float kMin = decode<D>(format_row(D).min_code);
      kernel.table = &kDecodeTable<D>;
      kernel.target = format_row(D).amax_target;
      kernel.least = keeps_nonzero(coding) ? kMin : 0.0f;
      kernel.log2_least = static_cast<float>(log2_ratio(kMin, format_row(D).amax_target));
    }
  });
  CHECK(kernel.table != nullptr);
  return kernel;
}

// m and v of the groups that are updated before the first is encoded; the rest of one group.
struct alignas(64) Buffers {
  float m[kMaxGroup], v[kMaxGroup];
  float g[kMaxGroup], w[kMaxGroup], y[kMaxGroup];
  uint32_t random[kMaxGroup];
  uint16_t lanes16[3][kMaxGroup];  // stand for memory at ragged ends
  uint8_t lanes8[kMaxGroup];
};

// Elements [first, first + n) of the tensor, and n padded to whole vectors: where they differ, the
// vector loops read and write buffers that are padded with zeros instead of the tensors.
struct Span {
  int64_t first, n, padded;
  bool whole() const { return n == padded; }
  // At most `most` elements from the i-th on; `most` is a multiple of kPad where it is not all.
  Span part(int64_t i, int64_t most) const {
    const int64_t size = std::min(most, n - i);
    return {first + i, size, round_up(size, kPad)};
  }
  template <typename T>
  const T* read(const void* from, T* buffer) const {
    const T* source = static_cast<const T*>(from) + first;
    if (whole()) return source;
    std::memset(buffer, 0, static_cast<size_t>(padded) * sizeof(T));
    std::memcpy(buffer, source, static_cast<size_t>(n) * sizeof(T));
    return buffer;
  }
  template <typename T>
  T* target(void* to, T* buffer) const {
    return whole() ? static_cast<T*>(to) + first : buffer;
  }
  template <typename T>
  void write(const T* written, void* to) const {
    T* place = static_cast<T*>(to) + first;
    if (written != place) std::memcpy(place, written, static_cast<size_t>(n) * sizeof(T));
  }
};

class Groups {
 public:
  Groups(const AdamWGroups& args, const AdamwConstants& constants)
      : a_(args),
        k_(constants),
        vectors_(adamw_vectors()),
        m_(moment_kernel(args.m)),
        v_(moment_kernel(args.v)),
        is_direct_(args.m.coding.dtype == Dtype::f32 && args.v.coding.dtype == Dtype::f32 &&
                   is_f32_or_bf16(args.grad.dtype) &&
                   (args.store == WeightStore::remainder ||
                    (args.store == WeightStore::plain && args.weight_from.dtype == Dtype::f32 &&
                     args.weight_to.dtype == Dtype::f32))),
        group_(is_direct_ ? kBlockElems : args.group) {}

  // One group, or several whole ones: each step for all of them, so that the short scalar work
  // between the loops of one overlaps with the loops of others.
  void run(Buffers& b, int64_t first, int64_t n) const {
    const Span s{first, n, round_up(n, kPad)};
    UpdateSpan u = weight_span(b, s);
    u.m = load_moment(b, s, m_, b.m);
    u.v = load_moment(b, s, v_, b.v);
    u.m_to = is_in_place(s, m_) ? static_cast<float*>(a_.m.to) + first : b.m;
    u.v_to = is_in_place(s, v_) ? static_cast<float*>(a_.v.to) + first : b.v;
    u.group = std::min(s.padded, round_up(group_, kPad));
    std::array<BitRanges, kAtOnce> ranges;
    vectors_.update(k_, u, s.padded, is_direct_ ? nullptr : ranges.data());
    store_weight(b, s, u);
    const int64_t n_groups = ceil_div(n, group_);
    std::array<NewGroup, kAtOnce> m, v;
    bool overflows = false;
    for (int64_t i = 0; i < n_groups; ++i) {
      overflows |= ranges[i].m.amax >= kF32Inf || ranges[i].v.amax >= kF32Inf;
      const int64_t group = a_.first + first + i * group_;
      m[i] = {ranges[i].m, new_meta(m_, ranges[i].m, group)};
      v[i] = {ranges[i].v, new_meta(v_, ranges[i].v, group)};
    }
    if (overflows) keep_finite(u, s.n);
    store_moment(b, s, m_, {m.data(), u.m_to});
    store_moment(b, s, v_, {v.data(), u.v_to});
  }

  // Makes overflowed moments that are not in codes finite.
  void keep_finite(const UpdateSpan& u, int64_t n) const {
    if (!is_f32_or_bf16(v_.coding.dtype)) return;
    const bool is_unquantized_m = is_f32_or_bf16(m_.coding.dtype);
    for (int64_t i = 0; is_unquantized_m && i < n; ++i)
      u.m_to[i] = stored_moment(first_beside(u.m_to[i], u.v_to[i]));
    for (int64_t i = 0; i < n; ++i) u.v_to[i] = stored_moment(u.v_to[i]);
  }

  // How many elements run() takes of n that are left.
  int64_t run_length(int64_t n) const {
    if (is_direct_ && n >= kPad) return n / kPad * kPad;
    if (group_ % kPad != 0 || n < group_) return std::min(n, group_);
    const int64_t most = std::min(kAtOnce, kMaxGroup / group_);
    return std::min(most, n / group_) * group_;
  }

 private:
  static constexpr int64_t kAtOnce = 8;

  struct NewGroup {
    BitRange range;
    uint32_t meta;
  };
  // The new values of groups, which the vector loops may overrun to whole vectors.
  struct NewMoment {
    const NewGroup* groups;
    float* x;
  };

  UpdateSpan weight_span(Buffers& b, const Span& s) const {
    UpdateSpan u;
    u.multiply = multiply_;
    u.grad = {load_grad(b, s), a_.grad.dtype == Dtype::bf16 ? Dtype::bf16 : Dtype::f32};
    if (draws_inside(s)) {
      u.hi = s.read(a_.weight_from.data, b.lanes16[0]);
      u.hi_to = s.target(a_.weight_to.data, b.lanes16[0]);
      u.random = &a_.weight_random;
      u.first_word = a_.first + s.first;
    } else if (a_.store == WeightStore::remainder) {
      u.hi = s.read(a_.weight_from.data, b.lanes16[0]);
      u.hi_to = s.target(a_.weight_to.data, b.lanes16[0]);
      u.lo = s.read(a_.master_from, reinterpret_cast<int16_t*>(b.lanes16[1]));
      u.lo_to = s.target(a_.master_to, reinterpret_cast<int16_t*>(b.lanes16[1]));
    } else {
      u.w = load_weight(b, s);
      u.w_to = f32_weight_to(b, s);
    }
    return u;
  }

  // True if the update itself rounds the weights stochastically.
  bool draws_inside(const Span& s) const {
    return a_.store == WeightStore::stochastic && s.first % 4 == 0 &&
           a_.weight_from.dtype == Dtype::bf16;
  }

  // True if the update may read and write the moment in the tensors themselves.
  static bool is_in_place(const Span& s, const MomentKernel& kernel) {
    return s.whole() && kernel.coding.dtype == Dtype::f32;
  }

  const void* load_grad(Buffers& b, const Span& s) const {
    if (a_.grad.dtype == Dtype::bf16) {
      return s.read(a_.grad.data, b.lanes16[2]);
    }
    if (a_.grad.dtype == Dtype::f32) return s.read(a_.grad.data, b.g);
    load_float(s, a_.grad, b.g);
    return b.g;
  }

  void load_float(const Span& s, In x, float* to) const {
    if (x.dtype == Dtype::fp16) {
      const auto* codes = static_cast<const uint16_t*>(x.data) + s.first;
      fp16_.decode_16(codes, static_cast<size_t>(s.n), to);
    } else {
      convert_span(offset(x, s.first), s.n, {to, Dtype::f32});
    }
    std::memset(to + s.n, 0, static_cast<size_t>(s.padded - s.n) * sizeof(float));
  }

  void store_float(const Span& s, const float* x, Out to) const {
    if (to.dtype == Dtype::f32) return s.write(x, to.data);
    if (to.dtype != Dtype::fp16) return convert_span({x, Dtype::f32}, s.n, offset(to, s.first));
    auto* codes = static_cast<uint16_t*>(to.data) + s.first;
    fp16_.encode_16(x, static_cast<size_t>(s.n), codes);
  }

  void store_stochastic(Buffers& b, const Span& s, const float* x, const RandomStream& random,
                        void* to) const {
    draw(b, s, random);
    uint16_t* target = s.target(to, b.lanes16[0]);
    vectors_.narrow_stochastic(x, b.random, s.padded, target);
    s.write(target, to);
  }

  void draw(Buffers& b, const Span& s, const RandomStream& random) const {
    const int64_t first = a_.first + s.first;
    if (first % 4 == 0) return vectors_.random(random, first, s.padded, b.random);
    for (int64_t i = 0; i < s.n; ++i) {
      b.random[i] = random.bits(static_cast<uint64_t>(first + i));
    }
  }

  const float* load_weight(Buffers& b, const Span& s) const {
    const In from =
        a_.store == WeightStore::master ? In{a_.master_from, Dtype::f32} : a_.weight_from;
    if (from.dtype == Dtype::f32) return s.read(from.data, b.w);
    load_float(s, from, b.w);
    return b.w;
  }

  float* f32_weight_to(Buffers& b, const Span& s) const {
    if (a_.store == WeightStore::master) return s.target(a_.master_to, b.w);
    const bool plain = a_.store == WeightStore::plain && a_.weight_to.dtype == Dtype::f32;
    return plain ? s.target(a_.weight_to.data, b.w) : b.w;
  }

  void store_weight(Buffers& b, const Span& s, const UpdateSpan& u) const {
    switch (a_.store) {
      case WeightStore::plain:
        return store_float(s, u.w_to, a_.weight_to);
      case WeightStore::master:
        s.write(u.w_to, a_.master_to);
        return store_float(s, u.w_to, a_.weight_to);
      case WeightStore::stochastic:
        if (u.w == nullptr) return s.write(u.hi_to, a_.weight_to.data);
        return store_stochastic(b, s, u.w_to, a_.weight_random, a_.weight_to.data);
      case WeightStore::remainder:
        s.write(u.hi_to, a_.weight_to.data);
        return s.write(u.lo_to, a_.master_to);
    }
  }

  static std::span<float> floats(float* x, const Span& s) { return {x, static_cast<size_t>(s.n)}; }

  // The moment in f32: in place, or in x.
  const float* load_moment(Buffers& b, const Span& s, const MomentKernel& kernel, float* x) const {
    const MomentPlace& place = kernel.place;
    if (is_in_place(s, kernel)) return static_cast<const float*>(place.from) + s.first;
    if (is_f32_or_bf16(kernel.coding.dtype)) {
      load_float(s, {place.from, kernel.coding.dtype}, x);
      return x;
    }
    const uint8_t* codes = s.read(place.from, b.lanes8);
    std::array<DecodeJob, kAtOnce> jobs;
    size_t n_jobs = 0;
    for (int64_t i = 0; i < s.n; i += group_) {
      const Span group = s.part(i, group_);
      const DecodeJob job{place.meta_from[group.first / group_], codes + i, x + i};
      if (!decodes_in_vectors(kernel, job.meta)) {
        decode_group(kernel, job, group);
      } else if (kernel.expanded.decode != nullptr) {
        jobs[n_jobs++] = job;
      } else {
        vectors_.decode_expanded(*kernel.table, contraction(job.meta), job.codes, group.padded,
                                 job.x);
      }
    }
    const int64_t length = std::min(s.padded, round_up(group_, kPad));
    if (n_jobs > 0) kernel.expanded.decode(kernel.expanded, {jobs.data(), n_jobs}, length);
    if (!s.whole()) std::memset(x + s.n, 0, static_cast<size_t>(s.padded - s.n) * sizeof(float));
    return x;
  }

  void decode_group(const MomentKernel& kernel, const DecodeJob& job, const Span& s) const {
    if (job.meta == 0) {
      std::memset(job.x, 0, static_cast<size_t>(s.padded) * sizeof(float));
    } else if (!kernel.coding.expand) {
      vectors_.decode_plain(*kernel.table, meta_amax(job.meta), job.codes, s.padded, job.x);
    } else {
      decode_moments(kernel.coding, job.meta, {job.codes, static_cast<size_t>(s.n)},
                     floats(job.x, s));
    }
  }

  static Contraction contraction(uint32_t meta) {
    const double inv = 16.0 / meta_k16(meta);
    const float hi = float_of(bits_of(static_cast<float>(inv)) & ~0xFFFu);
    return {hi, static_cast<float>(inv - static_cast<double>(hi)), meta_amax(meta)};
  }
  // Powers and products stay normal numbers.
  static bool decodes_in_vectors(const MomentKernel& kernel, uint32_t meta) {
    if (!kernel.coding.expand || kernel.coding.math == MathMode::exact || meta_k16(meta) == 0)
      return false;
    const float lowest = kernel.expanded.rows != nullptr
                             ? kernel.expanded.rows[meta_k16(meta)].log2_least
                             : kernel.log2_least * 16.0f / static_cast<float>(meta_k16(meta));
    const auto exponent =
        static_cast<float>(static_cast<int>(bits_of(meta_amax(meta)) >> 23) - 127);
    return lowest > -125.0f && lowest + exponent > -125.0f && exponent < 125.0f;
  }
  static bool encodes_in_vectors(const MomentKernel& kernel, const BitRange& range) {
    if (!kernel.coding.expand || kernel.coding.math == MathMode::exact) return false;
    return range.amin >= bits_of(0x1p-126f) && range.amax <= bits_of(0x1p100f) &&
           float_of(range.amin) > float_of(range.amax) * 0x1p-100f;
  }

  static uint32_t new_meta(const MomentKernel& kernel, const BitRange& range, int64_t first) {
    const bool coded = !is_f32_or_bf16(kernel.coding.dtype) && range.amax < kF32Inf;
    return coded ? kernel.meta(range, first) : 0;
  }

  void store_moment(Buffers& b, const Span& s, const MomentKernel& kernel,
                    const NewMoment& next) const {
    const MomentPlace& place = kernel.place;
    if (is_f32_or_bf16(kernel.coding.dtype)) return store_unquantized_moment(b, s, kernel, next.x);
    std::array<EncodeJob, kAtOnce> jobs;
    size_t n_jobs = 0;
    uint8_t* const codes = s.target(place.to, b.lanes8);
    const NewGroup* group = next.groups;
    for (int64_t i = 0; i < s.n; i += group_, ++group) {
      const Span part = s.part(i, group_);
      if (group->meta != 0 && kernel.expanded.encode != nullptr && !kernel.coding.stochastic &&
          encodes_in_vectors(kernel, group->range)) {
        place.meta_to[part.first / group_] = group->meta;
        jobs[n_jobs++] = {group->meta, next.x + i, codes + i};
      } else {
        encode_group(b, part, kernel, {group, next.x + i});
      }
    }
    if (n_jobs == 0) return;
    const int64_t length = std::min(s.padded, round_up(group_, kPad));
    kernel.expanded.encode(kernel.expanded, {jobs.data(), n_jobs}, length);
    s.write(codes, place.to);
  }

  void encode_group(Buffers& b, const Span& s, const MomentKernel& kernel,
                    const NewMoment& next) const {
    const MomentPlace& place = kernel.place;
    const auto& [range, meta] = *next.groups;
    uint32_t& meta_to = place.meta_to[s.first / group_];
    const std::span<uint8_t> codes(static_cast<uint8_t*>(place.to) + s.first,
                                   static_cast<size_t>(s.n));
    const MomentDraw draw{place.random, a_.first + s.first};
    if (range.amax >= kF32Inf)
      return encode_moments(kernel.coding, floats(next.x, s), draw, codes, meta_to);
    meta_to = meta;
    if (meta == 0 || kernel.coding.stochastic) {
      return encode_with_meta(kernel.coding, meta, floats(next.x, s), draw, codes);
    }
    const ExpansionOf e{static_cast<float>(meta_k16(meta)) * 0.0625f, meta_amax(meta),
                        kernel.target, kernel.least};
    if (!kernel.coding.expand) {
      vectors_.scale_plain(e, next.x, s.padded, b.y);
    } else if (encodes_in_vectors(kernel, range)) {
      vectors_.scale_expanded(e, next.x, s.padded, b.y);
    } else {
      moment_scale(kernel.coding, meta, floats(next.x, s), floats(b.y, s));
    }
    kernel.codec.encode_f32(b.y, codes.size(), 1.0f, codes.data());
  }

  void store_unquantized_moment(Buffers& b, const Span& s, const MomentKernel& kernel,
                                const float* x) const {
    const MomentPlace& place = kernel.place;
    if (!kernel.coding.stochastic || kernel.coding.dtype == Dtype::f32) {
      store_float(s, x, {place.to, kernel.coding.dtype});
    } else {
      store_stochastic(b, s, x, place.random, place.to);
    }
    if (kernel.coding.dtype != Dtype::bf16) return;
    uint16_t* codes = static_cast<uint16_t*>(place.to) + s.first;
    const bool keeps_positive = kernel.coding.moment == Moment::second;
    for (int64_t i = 0; i < s.n; ++i) {
      codes[i] |= keeps_positive && codes[i] == 0 && x[i] > 0 ? 1 : 0;
      codes[i] -= (codes[i] & 0x7FFF) == 0x7F80 ? 1 : 0;  // Inf
    }
  }

  const AdamWGroups& a_;
  const AdamwConstants& k_;
  AdamwVectors vectors_;
  bool multiply_ = has_slow_divider();
  Codec fp16_ = simd_codec(Dtype::fp16);
  MomentKernel m_, v_;
  bool is_direct_;  // whole vectors are read and written in the tensors alone, as many as there are
  int64_t group_;
};

void keep(const void* from, void* to, int64_t bytes) {
  if (to != nullptr && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

void copy_states(const AdamWGroups& a, int64_t n) {
  keep(a.weight_from.data, a.weight_to.data, bytes_of(a.weight_to.dtype, n));
  keep(a.master_from, a.master_to, n * (a.store == WeightStore::remainder ? 2 : 4));
  // v first: the new metadata of m may lie where the old of v do.
  for (const MomentPlace* place : {&a.v, &a.m}) {
    keep(place->from, place->to, bytes_of(place->coding.dtype, n));
    keep(place->meta_from, place->meta_to,
         ceil_div(n, a.group) * static_cast<int64_t>(sizeof(uint32_t)));
  }
}

}  // namespace

void adamw_groups(const AdamWGroups& args, const AdamwConstants& constants, int64_t n,
                  ThreadPool& pool) {
  if (args.group <= 0 || args.group > kMaxGroup) {
    throw Error(ErrorCode::invalid_argument, "[adamw_groups] expected groups of 1 to {}, got {}",
                kMaxGroup, args.group);
  }
  const bool skip = args.skip != nullptr && *args.skip != 0;
  if (skip) copy_states(args, n);
  if (skip && args.amax == nullptr) return;
  const Groups groups(args, constants);
  for_blocks(pool, n, round_up(kBlockElems, args.group), [&](int64_t begin, int64_t end, int) {
    Buffers buffers;
    for (int64_t i = begin, n = 0; i < end && !skip; i += n) {
      n = groups.run_length(end - i);
      groups.run(buffers, i, n);
    }
    if (args.amax != nullptr) args.amax->add(offset(args.weight_to, begin), end - begin);
  });
}

}  // namespace octet::cpu
