// IDX and CIFAR-10's files: records of one size, held in memory.
#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/byte_stream.h"
#include "data/images/image_files.h"

namespace octet {
namespace {

uint8_t byte_at(const std::string& bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

struct RecordLayout {
  int64_t channels = 0, height = 0, width = 0;
  bool has_channels_last = false;
  int64_t n_bytes() const { return channels * height * width; }
};

// Pixels of picture i from byte i * stride + first on.
class RecordImages : public ImageSource {
 public:
  RecordImages(std::string path, RecordLayout layout, std::string bytes, int64_t stride,
               std::vector<uint8_t> labels)
      : path_(std::move(path)),
        layout_(layout),
        bytes_(std::move(bytes)),
        stride_(stride),
        labels_(std::move(labels)) {}

  int64_t n_images() const override { return static_cast<int64_t>(labels_.size()); }
  int32_t label(int64_t image) const override { return labels_.at(static_cast<size_t>(image)); }
  std::string name_of(int64_t image) const override {
    return fmt::format("'{}', image {}", path_, image);
  }

  uint64_t identity() const override {
    Xxh64 hash;
    for (const int64_t extent : {n_images(), layout_.channels, layout_.height, layout_.width}) {
      hash.add(extent);
    }
    hash.update(bytes_);
    hash.update(labels_);
    return hash.digest();
  }

  Image decode(int64_t image) const override {
    CHECK(image >= 0 && image < n_images());
    Image result(layout_.channels, layout_.height, layout_.width);
    const auto n = static_cast<size_t>(layout_.n_bytes());
    const std::string_view from =
        std::string_view(bytes_).substr(static_cast<size_t>((image + 1) * stride_) - n, n);
    const auto n_pixels = static_cast<size_t>(layout_.height * layout_.width);
    const auto n_channels = static_cast<size_t>(layout_.channels);
    for (size_t c = 0; c < n_channels; ++c) {
      for (size_t i = 0; i < n_pixels; ++i) {
        const size_t at = layout_.has_channels_last ? i * n_channels + c : c * n_pixels + i;
        result.pixels[c * n_pixels + i] = static_cast<uint8_t>(from[at]);
      }
    }
    return result;
  }

 private:
  std::string path_;
  RecordLayout layout_;
  std::string bytes_;
  int64_t stride_;
  std::vector<uint8_t> labels_;
};

std::string labels_path(const std::string& path) {
  std::string name = file_name(path);
  for (const std::string_view part : {"images-idx3", "images-idx4"}) {
    const size_t at = name.rfind(part);
    if (at == name.npos) continue;
    name.replace(at, part.size(), "labels-idx1");
    return path.substr(0, path.size() - file_name(path).size()) + name;
  }
  throw Error(ErrorCode::bad_data,
              "[images] '{}': expected a folder, .pack, .bin, or IDX with images-idx3 in its name",
              path);
}

// A file, unpacked, of at most max_bytes.
std::string read_file(const Files& files, const std::string& path, uint64_t max_bytes) {
  try {
    if (auto bytes = read_unpacked(files.open(path), max_bytes)) return *std::move(bytes);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::device, "[images] '{}' does not fit into memory", path);
  }
  throw Error(ErrorCode::bad_data, "[images] '{}': expected at most {} bytes, got more", path,
              max_bytes);
}

// An array of bytes: what an IDX file holds.
struct ByteArray {
  std::vector<int64_t> shape;
  std::string bytes;
};

// IDX: [0][0][8: bytes][rank] [u32be extent] ... data. Source: yann.lecun.com/exdb/mnist. Other
// types of elements, a rank above 4 and data of another length than the extents tell are errors.
ByteArray read_idx(const Files& files, const std::string& path, uint64_t max_bytes) {
  constexpr uint8_t kBytes = 8;
  constexpr size_t kMaxRank = 4;
  ByteArray array;
  array.bytes = read_file(files, path, max_bytes);
  const std::string& bytes = array.bytes;
  const auto expect = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(ErrorCode::bad_data, "[images] '{}': expected {}", path, what);
  };
  expect(bytes.size() >= 4 && bytes[0] == 0 && bytes[1] == 0, "an IDX file, got other data");
  expect(byte_at(bytes, 2) == kBytes,
         fmt::format("IDX of bytes (type 8), got type {}", byte_at(bytes, 2)));
  const size_t rank = byte_at(bytes, 3);
  expect(rank >= 1 && rank <= kMaxRank,
         fmt::format("IDX of 1 to {} dimensions, got {}", kMaxRank, rank));
  const size_t n_header = 4 + 4 * rank;
  expect(bytes.size() >= n_header, "the header of an IDX file, got its end");
  unsigned __int128 n = 1;
  for (size_t i = 0; i < rank; ++i) {
    uint32_t extent = 0;
    for (size_t k = 0; k < 4; ++k) extent = extent << 8 | byte_at(bytes, 4 + 4 * i + k);
    array.shape.push_back(extent);
    n *= extent;
  }
  expect(n == bytes.size() - n_header,
         fmt::format("{} bytes as its header tells, got {}", fmt::join(array.shape, " x "),
                     bytes.size() - n_header));
  array.bytes.erase(0, n_header);
  return array;
}

}  // namespace

std::shared_ptr<const ImageSource> idx_images(const Files& files, const std::string& path,
                                              const ImageSourceOptions& options) {
  const std::string beside = labels_path(path);
  ByteArray images = read_idx(files, path, options.max_bytes);
  const ByteArray labels = read_idx(files, beside, options.max_bytes);
  const std::vector<int64_t>& shape = images.shape;
  if (shape.size() < 3 || (shape.size() == 4 && shape[3] != 3) || images.bytes.empty()) {
    throw Error(ErrorCode::bad_data,
                "[images] '{}': expected pictures [N, H, W] or [N, H, W, 3], got [{}]", path,
                fmt::join(shape, ", "));
  }
  if (labels.shape != std::vector<int64_t>{shape[0]}) {
    throw Error(ErrorCode::bad_data, "[images] '{}': expected {} labels, got [{}]", beside,
                shape[0], fmt::join(labels.shape, ", "));
  }
  const bool has_channels = shape.size() == 4;
  const RecordLayout layout{has_channels ? 3 : 1, shape[1], shape[2], has_channels};
  return std::make_shared<RecordImages>(
      path, layout, std::move(images.bytes), layout.n_bytes(),
      std::vector<uint8_t>(labels.bytes.begin(), labels.bytes.end()));
}

std::shared_ptr<const ImageSource> cifar_images(const Files& files, const std::string& path,
                                                const ImageSourceOptions& options) {
  const RecordLayout layout{3, 32, 32};
  const int64_t stride = layout.n_bytes() + 1;
  std::string bytes = read_file(files, path, options.max_bytes);
  if (bytes.empty() || bytes.size() % static_cast<size_t>(stride) != 0) {
    throw Error(ErrorCode::bad_data,
                "[images] '{}': expected records of {} bytes (CIFAR-10), got {} bytes", path,
                stride, bytes.size());
  }
  std::vector<uint8_t> labels;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(stride)) {
    labels.push_back(byte_at(bytes, at));
  }
  return std::make_shared<RecordImages>(path, layout, std::move(bytes), stride, std::move(labels));
}

}  // namespace octet
