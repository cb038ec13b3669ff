#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "io/safetensors.h"

namespace octet {
namespace {

struct Row {
  SafeDtype stored;
  std::string_view name;
  int bytes;
  std::optional<Dtype> dtype;
};

constexpr std::array kRows = {
    Row{SafeDtype::f64, "F64", 8, std::nullopt},
    Row{SafeDtype::f32, "F32", 4, Dtype::f32},
    Row{SafeDtype::bf16, "BF16", 2, Dtype::bf16},
    Row{SafeDtype::f16, "F16", 2, Dtype::fp16},
    Row{SafeDtype::f8_e4m3, "F8_E4M3", 1, Dtype::e4m3},
    Row{SafeDtype::f8_e5m2, "F8_E5M2", 1, Dtype::e5m2},
    Row{SafeDtype::i64, "I64", 8, std::nullopt},
    Row{SafeDtype::i32, "I32", 4, Dtype::i32},
    Row{SafeDtype::i16, "I16", 2, Dtype::i16},
    Row{SafeDtype::i8, "I8", 1, Dtype::int8},
    Row{SafeDtype::u32, "U32", 4, Dtype::u32},
    Row{SafeDtype::u16, "U16", 2, Dtype::u16},
    Row{SafeDtype::u8, "U8", 1, Dtype::u8},
    Row{SafeDtype::boolean, "BOOL", 1, Dtype::boolean},
};

const Row& row(SafeDtype dtype) {
  return kRows.at(static_cast<size_t>(dtype));
}

constexpr bool rows_follow_the_enumerators() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].stored != static_cast<SafeDtype>(i)) return false;
  }
  return true;
}
static_assert(rows_follow_the_enumerators());

}  // namespace

std::string_view safe_dtype_name(SafeDtype dtype) {
  return row(dtype).name;
}
int element_width(SafeDtype dtype) {
  return row(dtype).bytes;
}
std::optional<Dtype> native_dtype(SafeDtype dtype) {
  return row(dtype).dtype;
}

std::optional<SafeDtype> safe_dtype_from_name(std::string_view name) {
  for (const Row& candidate : kRows) {
    if (candidate.name == name) return candidate.stored;
  }
  return std::nullopt;
}

SafeDtype stored_as(Dtype dtype) {
  CHECK(dtype != Dtype::real);
  for (const Row& candidate : kRows) {
    if (candidate.dtype == dtype) return candidate.stored;
  }
  CHECK(bytes_of(dtype, 1) == 1);
  return SafeDtype::u8;
}

TensorDecl tensor_decl(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  return {std::move(name), stored_as(dtype), std::move(shape), dtype};
}

uint64_t TensorDecl::n_bytes() const {
  uint64_t n = static_cast<uint64_t>(element_width(stored));
  bool is_empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      throw Error(ErrorCode::bad_data, "[safetensors] '{}': expected extents of 0 or more, got {}",
                  name, extent);
    }
    if (extent == 0) is_empty = true;
    if (extent != 0 && n > static_cast<uint64_t>(INT64_MAX) / static_cast<uint64_t>(extent)) {
      throw Error(ErrorCode::bad_data, "[safetensors] '{}': expected fewer than 2^63 bytes", name);
    }
    if (extent != 0) n *= static_cast<uint64_t>(extent);
  }
  return is_empty ? 0 : n;
}

}  // namespace octet
