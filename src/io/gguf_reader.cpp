#include "io/gguf_reader.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "io/gguf_blocks.h"

namespace octet {
namespace {

constexpr int64_t kPieceBytes = 1 << 16;  // less than an allocation that is mapped anew each time

int64_t count_elems(const GgufTensor& tensor) {
  int64_t n = 1;
  for (const int64_t extent : tensor.shape) n *= extent;
  return n;
}

// Returns its bytes.
uint64_t check_tensor(const GgufHeader& header, const GgufTensor& tensor, uint64_t n_data) {
  const GgufBlock* type = find_gguf_block(tensor.type);
  if (type == nullptr) {
    header.bad("'{}': expected one of the types {}, got type {}", tensor.name, gguf_block_names(),
               tensor.type);
  }
  if (tensor.shape.back() % type->elems != 0) {
    header.bad("'{}': expected rows of a multiple of {} elements as {}, got {}", tensor.name,
               type->elems, type->name, tensor.shape.back());
  }
  const auto n_bytes =
      static_cast<uint64_t>(count_elems(tensor) / type->elems) * static_cast<uint64_t>(type->bytes);
  if (tensor.offset > n_data || n_bytes > n_data - tensor.offset) {
    header.bad("'{}': expected {} bytes at {} of {} bytes of data, got the file's end", tensor.name,
               n_bytes, tensor.offset, n_data);
  }
  return n_bytes;
}

void check_tensors(const GgufHeader& header, uint64_t n_data) {
  std::map<uint64_t, std::pair<uint64_t, const GgufTensor*>> ends;  // by offset
  for (const GgufTensor& tensor : header.tensors()) {
    const uint64_t n_bytes = check_tensor(header, tensor, n_data);
    const auto [at, is_new] =
        ends.emplace(tensor.offset, std::pair(tensor.offset + n_bytes, &tensor));
    const auto before = at == ends.begin() ? ends.end() : std::prev(at), after = std::next(at);
    auto other = is_new ? ends.end() : at;
    if (is_new && after != ends.end() && at->second.first > after->first) other = after;
    if (is_new && before != ends.end() && before->second.first > at->first) other = before;
    if (other == ends.end()) continue;
    header.bad("'{}' and '{}': expected bytes of their own, got overlapping ones", tensor.name,
               other->second.second->name);
  }
}

}  // namespace

GgufReader GgufReader::open(const Files& files, const std::string& path) {
  GgufReader reader;
  reader.file_ = files.open(path);
  reader.bytes_ = std::make_shared<const std::string>(read_gguf_header(files, path));
  reader.header_ =
      std::make_shared<const GgufHeader>(*reader.bytes_, "gguf", path, GgufHeader::Tensors::read);
  const uint64_t n_file = reader.file_->size(), n_header = reader.header_->n_bytes();
  check_tensors(*reader.header_, n_file - std::min(n_file, n_header));
  const auto& tensors = reader.header_->tensors();
  for (size_t i = 0; i < tensors.size(); ++i) reader.index_.emplace(tensors[i].name, i);
  return reader;
}

const GgufTensor* GgufReader::find(std::string_view name) const {
  const auto at = index_.find(name);
  return at == index_.end() ? nullptr : &header_->tensors()[at->second];
}

void GgufReader::read(const GgufTensor& tensor, int64_t first, std::span<float> out) const {
  const GgufBlock* type = find_gguf_block(tensor.type);
  const int64_t end = first + static_cast<int64_t>(out.size());
  CHECK(type != nullptr && first >= 0 && end <= count_elems(tensor));
  std::vector<std::byte> bytes;
  float values[kMaxGgufBlock];
  const int64_t last_block = (end + type->elems - 1) / type->elems;
  const int64_t piece_blocks = kPieceBytes / type->bytes;
  for (int64_t piece = first / type->elems; piece < last_block; piece += piece_blocks) {
    const int64_t n = std::min(piece_blocks, last_block - piece);
    bytes.resize(static_cast<size_t>(n * type->bytes));
    file_->read_at(header_->n_bytes() + tensor.offset + static_cast<uint64_t>(piece * type->bytes),
                   bytes);
    // Whole blocks at once; of one at an end a part.
    for (int64_t block = 0; block < n;) {
      const std::byte* from_block = bytes.data() + block * type->bytes;
      const int64_t at = (piece + block) * type->elems;
      const int64_t whole = at < first ? 0 : std::min(n - block, (end - at) / type->elems);
      if (whole > 0) {
        type->decode_all(from_block, whole, out.data() + (at - first));
        block += whole;
        continue;
      }
      type->decode(from_block, values);
      const int64_t from = std::max(at, first), to = std::min(at + type->elems, end);
      std::copy(values + (from - at), values + (to - at), out.begin() + (from - first));
      ++block;
    }
  }
}

}  // namespace octet
