#include "infer/array_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "formats/arrays.h"
#include "io/safetensors.h"

namespace octet {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;  // of an array that is read whole

InputSpec lengths_input() {
  return {.name = "lengths", .per = Per::row};
}

template <typename Stored>
void widen_indices(std::span<const std::byte> bytes, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<int64_t>(value);
  }
}

using IndexReader = void (*)(std::span<const std::byte> bytes, std::span<int64_t> out);

// nullptr of what is no index.
IndexReader index_reader(SafeDtype stored) {
  switch (stored) {
    case SafeDtype::i64:
      return widen_indices<int64_t>;
    case SafeDtype::i32:
      return widen_indices<int32_t>;
    case SafeDtype::i16:
      return widen_indices<int16_t>;
    case SafeDtype::i8:
      return widen_indices<int8_t>;
    case SafeDtype::u32:
      return widen_indices<uint32_t>;
    case SafeDtype::u16:
      return widen_indices<uint16_t>;
    case SafeDtype::u8:
      return widen_indices<uint8_t>;
    default:
      return nullptr;
  }
}

bool are_numbers(SafeDtype stored) {
  return stored == SafeDtype::f32 || stored == SafeDtype::bf16 || stored == SafeDtype::f16;
}

// Elements before the end of each extent: of [3, 4, 5] 3, 12 and 60. Extents of 1 add none.
std::set<uint64_t> ends_of(const std::vector<int64_t>& extents) {
  std::set<uint64_t> ends;
  uint64_t n = 1;
  for (const int64_t extent : extents) ends.insert(n *= static_cast<uint64_t>(extent));
  ends.erase(1);
  return ends;
}

// True if the elements of both are in one order: neighbours among the extents of one may be a
// single one of the other. Channels behind rows and columns are not those before them.
bool have_one_order(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const std::set<uint64_t> left = ends_of(a), right = ends_of(b);
  return std::ranges::includes(left, right) || std::ranges::includes(right, left);
}

// [H, W, C] for [C, H, W].
bool has_channels_last(const std::vector<int64_t>& got, const std::vector<int64_t>& expected) {
  return got.size() == 3 && expected.size() == 3 && got[0] == expected[1] &&
         got[1] == expected[2] && got[2] == expected[0];
}

// One file: arrays by the inputs that they are for.
class ArrayFile {
 public:
  ArrayFile(const Files& files, const std::string& path, const ArrayRowsOptions& options)
      : options_(options), reader_(SafetensorsReader::open(files, path)) {}

  bool has(std::string_view name) const { return reader_.find(name) != nullptr; }

  // Checks all of them, and counts their samples.
  void open(const std::vector<InputSpec>& inputs) {
    for (const InputSpec& input : inputs) {
      const StoredTensor* tensor = reader_.find(input.name);
      if (tensor == nullptr) {
        std::vector<std::string> names;
        for (const StoredTensor& one : reader_.tensors()) names.push_back(one.name);
        fail("expected an array '{}', got {}", input.name, fmt::join(names, ", "));
      }
      check_type(input, *tensor);
      check_extents(input, *tensor);
    }
    if (n_samples_ < 1) fail("expected a sample at least, got {}", n_samples_);
    for (const InputSpec& input : inputs) hash_and_check(input, reader_.at(input.name));
  }

  int64_t n_samples() const { return n_samples_; }
  uint64_t identity() const { return hash_.digest(); }

  // Elements of a sample.
  int64_t n_elems(const InputSpec& input) const {
    const RowDims dims{options_.rows_per_sample, options_.seq, options_.rows_per_sample};
    return dims.count(input.per) * input.n_inner();
  }

  void read(const InputSpec& input, int64_t sample, std::span<int64_t> out) const {
    const StoredTensor& tensor = reader_.at(input.name);
    index_reader(tensor.stored)(read_bytes(tensor, sample * std::ssize(out), std::ssize(out)), out);
  }
  void read(const InputSpec& input, int64_t sample, std::span<float> out) const {
    const StoredTensor& tensor = reader_.at(input.name);
    const auto bytes = read_bytes(tensor, sample * std::ssize(out), std::ssize(out));
    const auto values = std::as_writable_bytes(out);
    if (tensor.stored == SafeDtype::f32) {
      std::ranges::copy(bytes, values.begin());
    } else {
      decode_array(native_dtype(tensor.stored).value(), bytes, values);
    }
  }
  int64_t sample_bytes(const InputSpec& input) const {
    return n_elems(input) * element_width(reader_.at(input.name).stored);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::bad_data, "[data] {}: {}", reader_.path(),
                fmt::format(format, std::forward<Args>(args)...));
  }

  void check_type(const InputSpec& input, const StoredTensor& tensor) const {
    const bool is_number = input.type == HostType::real;
    if (is_number ? are_numbers(tensor.stored) : index_reader(tensor.stored) != nullptr) return;
    fail("'{}': expected {}, got {}", input.name,
         is_number ? "numbers (F32, BF16, F16)" : "integers", safe_dtype_name(tensor.stored));
  }

  // [rows or samples, (tokens of a row,) elements of an item], the last in any number of extents
  // that keeps their order.
  void check_extents(const InputSpec& input, const StoredTensor& tensor) {
    const bool has_tokens = input.per == Per::token;
    const int64_t n_own = input.per == Per::sample ? 1 : options_.rows_per_sample;
    std::vector<int64_t> rest = tensor.shape;
    const int64_t n = rest.empty() ? 0 : rest.front();
    if (!rest.empty()) rest.erase(rest.begin());
    const bool seq_fits = !has_tokens || (!rest.empty() && rest.front() == options_.seq);
    if (has_tokens && !rest.empty()) rest.erase(rest.begin());
    int64_t n_inner = 1;
    for (const int64_t extent : rest) n_inner *= extent;
    const bool has_order = have_one_order(rest, input.inner);
    if (tensor.shape.empty() || !seq_fits || n_inner != input.n_inner() || !has_order) {
      std::string expected = "rows";
      if (has_tokens) expected += fmt::format(", {}", options_.seq);
      if (input.n_inner() != 1) expected += fmt::format(", {}", fmt::join(input.inner, ", "));
      const bool is_last = has_channels_last(rest, input.inner);
      fail("'{}': expected [{}], got [{}]{}", input.name, expected, fmt::join(tensor.shape, ", "),
           is_last ? ": channels must come before rows and columns (NumPy: transpose(0, 3, 1, 2))"
                   : "");
    }
    if (n % n_own != 0) fail("'{}': expected rows in groups of {}, got {}", input.name, n_own, n);
    if (n_samples_ >= 0 && n / n_own != n_samples_) {
      fail("'{}': expected {} rows as in the array before it, got {}", input.name,
           n_samples_ * n_own, n);
    }
    n_samples_ = n / n_own;
  }

  // All of what holds indices, both ends of what holds numbers, which may be as large as a disk.
  void hash_and_check(const InputSpec& input, const StoredTensor& tensor) {
    hash_.update(fmt::format("{} {} [{}]", input.name, safe_dtype_name(tensor.stored),
                             fmt::join(tensor.shape, ", ")));
    const int64_t n = n_samples_ * n_elems(input), width = element_width(tensor.stored);
    const int64_t n_piece = std::min(n, kPieceBytes / width);
    if (input.type == HostType::real) {
      for (const int64_t first : {int64_t{0}, n - n_piece})
        hash_.update(read_bytes(tensor, first, n_piece));
      return;
    }
    std::vector<int64_t> values;
    for (int64_t first = 0; first < n; first += n_piece) {
      const auto bytes = read_bytes(tensor, first, std::min(n_piece, n - first));
      hash_.update(bytes);
      values.resize(bytes.size() / static_cast<size_t>(width));
      index_reader(tensor.stored)(bytes, values);
      for (size_t i = 0; i < values.size(); ++i)
        check_value(input, first + static_cast<int64_t>(i), values[i]);
    }
  }

  void check_value(const InputSpec& input, int64_t at, int64_t value) const {
    const bool is_length = input.name == lengths_input().name;
    const int64_t least = is_length ? 1 : input.fill == Fill::ignored ? kIgnoredLabel : 0;
    const int64_t most = is_length ? options_.seq : input.bound > 0 ? input.bound - 1 : INT32_MAX;
    if (value >= least && value <= most) return;
    fail("'{}': expected values from {} to {}, got {} in row {}", input.name, least, most, value,
         at / (n_elems(input) / (input.per == Per::sample ? 1 : options_.rows_per_sample)));
  }

  std::vector<std::byte> read_bytes(const StoredTensor& tensor, int64_t first, int64_t n) const {
    const auto width = static_cast<uint64_t>(element_width(tensor.stored));
    std::vector<std::byte> bytes(static_cast<size_t>(n) * width);
    if (n > 0) reader_.read(tensor, bytes, static_cast<uint64_t>(first) * width);
    return bytes;
  }

  const ArrayRowsOptions& options_;
  SafetensorsReader reader_;
  int64_t n_samples_ = -1;
  Xxh64 hash_;
};

class ArrayRows : public RowSource {
 public:
  ArrayRows(const Files& files, const std::vector<std::string>& paths, ArrayRowsOptions options)
      : options_(std::move(options)) {
    CHECK(!paths.empty());
    for (const std::string& path : paths) {
      auto file = std::make_unique<ArrayFile>(files, path, options_);
      if (files_.empty()) choose_inputs(*file);
      file->open(read_);
      ends_.push_back(n_samples() + file->n_samples());
      files_.push_back(std::move(file));
    }
  }

  int64_t n_samples() const override { return ends_.empty() ? 0 : ends_.back(); }
  int64_t rows_per_sample() const override { return options_.rows_per_sample; }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool tells_lengths() const override { return read_.size() > inputs_.size(); }
  uint64_t identity() const override {
    Xxh64 hash;
    for (const auto& file : files_) hash.add(file->identity());
    return hash.digest();
  }
  std::optional<int64_t> n_counted(int64_t sample, const RowCell&,
                                   const InputSpec& input) const override {
    const auto& [file, at] = place_of(sample);
    const int64_t n = file.n_elems(input);
    if (input.type == HostType::real) {
      std::vector<float> values(static_cast<size_t>(n));
      file.read(input, at, values);
      return n - std::ranges::count_if(values, [](float value) { return std::isnan(value); });
    }
    std::vector<int64_t> values(static_cast<size_t>(n));
    file.read(input, at, values);
    return n - std::ranges::count(values, kIgnoredLabel);
  }
  int64_t sample_bytes() const override {
    int64_t n = 0;
    for (const InputSpec& input : read_) n += files_.front()->sample_bytes(input);
    return n;
  }

  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    const auto& [file, at] = place_of(sample);
    const int64_t place = where.row / options_.rows_per_sample;
    for (const InputSpec& input : inputs_) {
      const int64_t n = file.n_elems(input);
      if (input.type == HostType::real) {
        file.read(input, at, part(to.reals(input.name), place, n));
      } else {
        copy_indices(file, input, at, part(to.ints(input.name), place, n));
      }
    }
    if (!tells_lengths()) return;
    std::vector<int64_t> lengths(static_cast<size_t>(options_.rows_per_sample));
    file.read(lengths_input(), at, lengths);
    std::ranges::copy(lengths, to.lengths.begin() + where.row);
  }

 private:
  struct Place {
    const ArrayFile& file;
    int64_t sample;
  };

  // Inputs read of all files: those that must be there, and those that the first one has beside.
  void choose_inputs(const ArrayFile& first) {
    for (const InputSpec& input : options_.inputs) {
      const bool is_made = std::ranges::find(options_.made, input.name) != options_.made.end();
      if (!is_made || first.has(input.name)) inputs_.push_back(input);
    }
    read_ = inputs_;
    if (first.has(lengths_input().name)) read_.push_back(lengths_input());
  }

  Place place_of(int64_t sample) const {
    CHECK(sample >= 0 && sample < n_samples());
    const auto end = std::ranges::upper_bound(ends_, sample);
    const int64_t first = end == ends_.begin() ? 0 : *(end - 1);
    return {*files_[static_cast<size_t>(end - ends_.begin())], sample - first};
  }

  template <typename T>
  static std::span<T> part(std::vector<T>& values, int64_t place, int64_t n) {
    return std::span(values).subspan(static_cast<size_t>(place * n), static_cast<size_t>(n));
  }

  static void copy_indices(const ArrayFile& file, const InputSpec& input, int64_t sample,
                           std::span<int32_t> out) {
    std::vector<int64_t> values(out.size());
    file.read(input, sample, values);
    std::ranges::transform(values, out.begin(), [](int64_t v) { return static_cast<int32_t>(v); });
  }

  ArrayRowsOptions options_;
  std::vector<InputSpec> inputs_, read_;  // read_: lengths besides
  std::vector<std::unique_ptr<ArrayFile>> files_;
  std::vector<int64_t> ends_;
};

}  // namespace

std::shared_ptr<const RowSource> array_rows(const Files& files,
                                            const std::vector<std::string>& paths,
                                            const ArrayRowsOptions& options) {
  return std::make_shared<ArrayRows>(files, paths, options);
}

}  // namespace octet
