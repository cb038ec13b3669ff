// The names of an op's operands and results. In a struct called like the op each is an enumerator
// and a word of text; behind them stands how many must be there (SlotNeeds):
//   OCTET_SLOTS(Gemm, (a, b, c, scale_a, scale_b), (y), 2);
//   node.in(Gemm::scale_a), node.out(Gemm::y), Gemm::operands[2].optional
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace octet {

// An operand or result, by its place in the op's list; a node has kNoValue there where it is
// absent.
using SlotId = uint8_t;
inline constexpr SlotId kNoSlot = 255;

// Some operands or results of an op, by name: {Gelu::x}.
class SlotSet {
 public:
  constexpr SlotSet() = default;
  constexpr SlotSet(std::initializer_list<SlotId> slots) {
    for (const SlotId slot : slots) bits_ |= uint16_t{1} << slot;
  }
  constexpr bool contains(size_t slot) const { return slot < kMax && (bits_ >> slot & 1) != 0; }
  constexpr int size() const { return std::popcount(bits_); }
  constexpr bool operator==(const SlotSet&) const = default;

 private:
  static constexpr size_t kMax = 16;
  uint16_t bits_ = 0;
};

struct Slot {
  std::string_view name;
  bool optional = false;
};

// many: of the last slot there may be any number.
enum class LastSlot : uint8_t { one, many };

class SlotList {
 public:
  constexpr SlotList() = default;
  // `names` stand between ", "; the first n_required must be there.
  constexpr SlotList(std::string_view names, size_t n_required, LastSlot last = LastSlot::one)
      : last_(last) {
    for (size_t from = 0; from < names.size();) {
      const size_t comma = names.find(',', from);
      const size_t end = comma == std::string_view::npos ? names.size() : comma;
      names_[n_++] = names.substr(from, end - from);
      from = comma == std::string_view::npos ? end : end + 2;
    }
    n_required_ = n_required < n_ ? n_required : n_;
  }

  // How many are named, and how many of them must be there.
  constexpr size_t size() const { return n_; }
  constexpr size_t n_required() const { return n_required_; }
  constexpr bool has_many() const { return last_ == LastSlot::many; }
  // True if there may be n, and what place i is called.
  constexpr bool fits(size_t n) const { return n >= n_required_ && (has_many() || n <= n_); }
  constexpr Slot operator[](size_t i) const {
    const bool repeats = n_ > 0 && has_many() && i + 1 >= n_;
    const bool is_named = repeats || i < n_;
    return {.name = is_named ? names_[repeats ? n_ - 1 : i] : "?",
            .optional = i >= n_required_ && !repeats};
  }
  // kNoSlot where none is called so.
  constexpr SlotId find(std::string_view name) const {
    for (size_t i = 0; i < n_; ++i) {
      if (names_[i] == name) return static_cast<SlotId>(i);
    }
    return kNoSlot;
  }

 private:
  static constexpr size_t kMax = 14;
  std::array<std::string_view, kMax> names_ = {};
  size_t n_ = 0, n_required_ = 0;
  LastSlot last_ = LastSlot::one;
};

// How many operands and results must be there, and whether of the last ones there may be more.
inline constexpr size_t kAllSlots = static_cast<size_t>(-1);
struct SlotNeeds {
  size_t operands = kAllSlots, results = kAllSlots;
  LastSlot last = LastSlot::one, last_result = LastSlot::one;
};

// Operand `operand` may be quantized; operand `scale` is then its scales, of its scale_type().
struct ScalePlace {
  SlotId operand = 0, scale = 0;
};
template <typename Op>
inline constexpr ScalePlace kScaleOfX[] = {{Op::x, Op::x_scale}};
template <typename Op>
inline constexpr ScalePlace kScalesOfGate[] = {{Op::gate, Op::gate_scale}, {Op::up, Op::up_scale}};

// A per-tensor quantizer that an op has in it, of its first results. Operands: the scale of the
// codes, where it is given, or a history of maxima. Results: what it makes where no scale is given,
// and the first codes transposed, behind which those of the next stand.
struct StoreSlots {
  SlotId given_scale = kNoSlot, history = kNoSlot;
  SlotId scale = kNoSlot, nonfinite = kNoSlot, next_history = kNoSlot;
  SlotId transposed = kNoSlot;
};
template <typename Op, SlotId kTransposed = Op::q_transposed>
inline constexpr StoreSlots kStore = {Op::given_scale, Op::history,      Op::scale,
                                      Op::nonfinite,   Op::next_history, kTransposed};

// Slots of a norm, also of one with a quantizer in it, beside x and y, and of its gradient beside
// dy and dx. The statistics are results of a norm and operands of its gradient.
struct NormSlots {
  SlotId weight = kNoSlot, bias = kNoSlot;
  SlotId mean = kNoSlot, rstd = kNoSlot;
  SlotId known_mean = kNoSlot, known_rstd = kNoSlot;
  SlotId dbias = kNoSlot;
};

#define OCTET_LIST(...) __VA_ARGS__
#define OCTET_TEXT(...) #__VA_ARGS__
#define OCTET_SLOTS(Op, operand_names, result_names, ...)                                          \
  struct Op {                                                                                      \
    enum In : uint8_t { OCTET_LIST operand_names };                                                \
    enum Out : uint8_t { OCTET_LIST result_names };                                                \
    static constexpr SlotNeeds kNeeds = {__VA_ARGS__};                                             \
    static constexpr SlotList operands = {OCTET_TEXT operand_names, kNeeds.operands, kNeeds.last}; \
    static constexpr SlotList results = {OCTET_TEXT result_names, kNeeds.results,                  \
                                         kNeeds.last_result};                                      \
  }

}  // namespace octet
