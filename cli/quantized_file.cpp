#include "cli/quantized_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "formats/names.h"
#include "math/expansion_options.h"

namespace octet {
namespace {

template <typename... Args>
[[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::bad_data, "[formats] {}",
              fmt::format(format, std::forward<Args>(args)...));
}

template <typename T>
std::vector<T> read_tensor(const SafetensorsReader& file, const StoredTensor& tensor) {
  std::vector<T> words(tensor.n_bytes() / sizeof(T));
  file.read(tensor, std::as_writable_bytes(std::span(words)));
  return words;
}

std::string metadata_of(const SafetensorsReader& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found != file.metadata().end()) return found->second;
  bad("expected a file of `octet formats quantize`, got one without {} in its metadata", key);
}

// Coding of the data, by the metadata.
struct Coding {
  Dtype format;
  Granularity granularity;
};

// The names come from the file: a wrong one is its fault, not the caller's.
template <typename Parse>
auto parsed(const SafetensorsReader& file, const std::string& key, Parse parse) {
  try {
    return parse(metadata_of(file, key));
  } catch (const Error& error) {
    bad("metadata '{}': {}", key, error.what());
  }
}

Coding coding_of(const SafetensorsReader& file) {
  return {parsed(file, "format", [](const std::string& name) { return format_from_name(name); }),
          parsed(file, "granularity",
                 [](const std::string& name) { return granularity_from_name(name); })};
}

void expect_shape(const StoredTensor& tensor, const std::vector<int64_t>& shape,
                  const Coding& coding) {
  if (tensor.shape == shape) return;
  bad("{}: expected shape [{}] for granularity {}, got [{}]", tensor.name, fmt::join(shape, ", "),
      granularity_name(coding.granularity), fmt::join(tensor.shape, ", "));
}

MatrixShape check_codes(const StoredTensor& codes, const Coding& coding) {
  if (codes.shape.size() != 2) bad("codes: expected [rows, cols], got rank {}", codes.shape.size());
  const SafeDtype fit = stored_as(coding.format);
  const bool is_other = codes.dtype && is_format(*codes.dtype) && *codes.dtype != coding.format;
  if (dtype_bytes(coding.format) != 1 || codes.stored != fit || is_other) {
    bad("codes: expected format {} of one byte in {}, as the metadata say, got {}",
        dtype_name(coding.format), safe_dtype_name(fit), safe_dtype_name(codes.stored));
  }
  return {codes.shape[0], codes.shape[1]};
}

std::vector<float> read_scales(const SafetensorsReader& file, const StoredTensor& tensor) {
  if (tensor.stored == SafeDtype::f32) return read_tensor<float>(file, tensor);
  if (tensor.stored != SafeDtype::bf16) {
    bad("scale: expected F32 or BF16, got {}", safe_dtype_name(tensor.stored));
  }
  std::vector<float> scales;
  for (const uint16_t code : read_tensor<uint16_t>(file, tensor)) {
    scales.push_back(f32_from_bf16(code));
  }
  return scales;
}

}  // namespace

std::vector<float> dequantize_file(const SafetensorsReader& file) {
  const Coding coding = coding_of(file);
  const StoredTensor& tensor = file.at("codes");
  const MatrixShape shape = check_codes(tensor, coding);
  const auto codes = read_tensor<uint8_t>(file, tensor);
  std::vector<float> x(codes.size());
  const StoredTensor* meta = file.find("meta");
  if (meta == nullptr) {
    const Quantizer quantizer = linear_quantizer(coding.format, coding.granularity);
    const StoredTensor& scale = file.at("scale");
    const MatrixShape grid = scale_shape(shape, coding.granularity);
    expect_shape(scale, {grid.rows, grid.cols}, coding);
    dequantize(quantizer, shape, codes, read_scales(file, scale), x);
    return x;
  }
  if (meta->stored != SafeDtype::u32) {
    bad("meta: expected U32, got {}", safe_dtype_name(meta->stored));
  }
  const ExpandOptions options{
      .format = coding.format,
      .group =
          parsed(file, "granularity",
                 [&](const std::string&) { return expansion_group(coding.granularity, shape); }),
      .math = parsed(file, "math", [](const std::string& name) { return math_from_name(name); })};
  expect_shape(*meta, {expand_groups(std::ssize(codes), options.group)}, coding);
  expand_dequantize(options, codes, read_tensor<uint32_t>(file, *meta), x);
  return x;
}

}  // namespace octet
