// The safetensors format: an 8-byte little-endian header length, a JSON header, then the tensors'
// bytes back to back. Source: the format's description in the safetensors repository.
// docs/formats/checkpoint.md says what Octet adds.
//
// The reader trusts no length: the header is bounded by the file and by kMaxHeaderBytes, names are
// unique, every tensor's bytes are dtype x shape, and the tensors cover the data exactly, without
// holes or overlaps. Errors: Error{bad_data}, "[safetensors] PATH: expected ..., got ...".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/named_enum.h"
#include "formats/dtype.h"

namespace octet {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// The dtypes of the format itself, as of safetensors 0.8; those without a counterpart in Octet are
// listed, and most of them not read.
enum class SafeDtype {
  f64,
  f32,
  bf16,
  f16,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  i64,
  i32,
  i16,
  i8,
  u32,
  u16,
  u8,
  boolean,
  u64,
  c64,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  f6_e2m3,
  f6_e3m2,
  f4
};
constexpr auto value_names(SafeDtype) {  // as in the file
  return name_list("F64", "F32", "BF16", "F16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I64", "I32",
                   "I16", "I8", "U32", "U16", "U8", "BOOL", "U64", "C64", "F8_E4M3FNUZ",
                   "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2", "F4");
}

std::string_view safe_dtype_name(SafeDtype dtype);
int element_width(SafeDtype dtype);  // bytes; CHECKs against those of 4 and 6 bits
std::optional<SafeDtype> safe_dtype_from_name(std::string_view name);
SafeDtype stored_as(Dtype dtype);  // hif8, e8m0, de8s, de8u: u8. CHECKs against real
std::optional<Dtype> native_dtype(SafeDtype dtype);  // nothing where Octet has none

struct TensorDecl {
  std::string name;
  SafeDtype stored = SafeDtype::f32;
  std::vector<int64_t> shape;
  // The type of the bytes where the format has no name for it (hif8 codes in U8); goes to the
  // metadata.
  std::optional<Dtype> dtype = {};

  uint64_t n_bytes() const;  // throws Error{bad_data} where dtype x shape are not so many bytes
};
TensorDecl tensor_decl(std::string name, Dtype dtype, std::vector<int64_t> shape);

struct StoredTensor : TensorDecl {
  uint64_t offset = 0;  // in the file
};

class SafetensorsReader {
 public:
  // Reads and checks the header alone; tensors are read when asked for.
  static SafetensorsReader open(const Files& files, const std::string& path);

  const std::string& path() const { return file_->path(); }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of the file
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const StoredTensor* find(std::string_view name) const;  // null when absent
  const StoredTensor& at(std::string_view name) const;    // Error when absent

  // Bytes [first, first + out.size()) of a tensor.
  void read(const StoredTensor& tensor, std::span<std::byte> out, uint64_t first = 0) const;
  std::vector<std::byte> read(std::string_view name) const;

 private:
  void parse_header(std::string_view header, uint64_t n_data_bytes);
  void check_coverage(uint64_t data_offset, uint64_t n_data_bytes);

  std::shared_ptr<FileReader> file_;  // shared so that readers can be copied into results
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

// A tensor to be written: `emit` hands its bytes to the sink in one or more pieces.
using ByteSink = std::function<void(std::span<const std::byte>)>;
struct TensorPart {
  uint64_t first = 0, n_bytes = 0;  // of the tensor's bytes
};
struct TensorSource {
  TensorDecl decl;
  std::function<void(const ByteSink&)> emit;
  std::optional<TensorPart> part = {};  // which bytes `emit` gives; nothing: all
};
TensorSource span_source(TensorDecl decl, std::span<const std::byte> bytes);

// Widest elements first, so that each is aligned to its element, and otherwise in the given order.
std::vector<const TensorSource*> in_file_order(std::span<const TensorSource> tensors);

// The layout of the file that write_safetensors makes of these tensors, which must outlive it.
struct SafetensorsLayout {
  explicit SafetensorsLayout(std::span<const TensorSource> sources,
                             std::map<std::string, std::string> metadata = {});
  std::vector<const TensorSource*> tensors;  // in the order of the file
  std::vector<uint64_t> offsets;             // of their bytes
  std::string header;                        // all that comes before
  uint64_t n_bytes = 0;                      // of the file
};

// Writes all tensors in this order. CHECKs that each emits the bytes that it declares, and that no
// two have one name.
void write_safetensors(FileWriter& out, std::span<const TensorSource> tensors,
                       std::map<std::string, std::string> metadata = {});

}  // namespace octet
