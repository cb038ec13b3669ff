// Packs and folders of PNG and JPEG files, read when needed.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/images/image_files.h"
#include "data/text_files.h"

namespace octet {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;  // of one picture

std::vector<std::byte> read_range(const FileReader& file, uint64_t at, uint64_t n) {
  std::vector<std::byte> bytes(n);
  file.read_at(at, bytes);
  return bytes;
}

class PackImages : public ImageSource {
 public:
  PackImages(const Files& files, const std::string& path) : file_(files.open(path)) {
    constexpr uint64_t kHeader = 5;
    const uint64_t n_bytes = file_->size();
    for (uint64_t at = 0; at < n_bytes;) {
      std::array<uint8_t, kHeader> header = {};
      if (n_bytes - at >= kHeader) file_->read_at(at, header);
      uint32_t n = 0;
      std::memcpy(&n, header.data() + 1, sizeof(n));
      if (n_bytes - at < kHeader || n == 0 || n > n_bytes - at - kHeader) {
        throw Error(ErrorCode::bad_data,
                    "[images] '{}': expected [label][n][n bytes] as record {}, got {} bytes", path,
                    records_.size(), n_bytes - at);
      }
      records_.push_back({at + kHeader, n, header[0]});
      at += kHeader + n;
    }
    if (records_.empty()) {
      throw Error(ErrorCode::bad_data, "[images] '{}': expected pictures, got an empty file", path);
    }
  }

  int64_t n_images() const override { return static_cast<int64_t>(records_.size()); }
  int32_t label(int64_t image) const override { return record(image).label; }
  std::string name_of(int64_t image) const override {
    return fmt::format("'{}', image {}", file_->path(), image);
  }
  Image decode(int64_t image) const override {
    const auto& [at, n, label] = record(image);
    return decode_image(read_range(*file_, at, n), name_of(image));
  }

  // All lengths and labels, and both ends: to read all would take minutes for large packs.
  uint64_t identity() const override {
    constexpr uint64_t kEnd = 1 << 16;
    Xxh64 hash;
    for (const Record& one : records_) {
      const uint64_t words[] = {one.at, one.n_bytes, one.label};
      hash.update(words);
    }
    const uint64_t n = std::min(kEnd, file_->size());
    for (const uint64_t at : {uint64_t{0}, file_->size() - n}) {
      hash.update(read_range(*file_, at, n));
    }
    return hash.digest();
  }

 private:
  struct Record {
    uint64_t at = 0;
    uint32_t n_bytes = 0;
    uint8_t label = 0;
  };
  const Record& record(int64_t image) const { return records_.at(static_cast<size_t>(image)); }

  std::unique_ptr<FileReader> file_;
  std::vector<Record> records_;
};

bool has_image_name(const std::string& path) {
  std::string name = file_name(path);
  for (char& ch : name) ch = ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch + 'a' - 'A') : ch;
  return name.ends_with(".png") || name.ends_with(".jpg") || name.ends_with(".jpeg");
}

std::vector<std::byte> read_picture(const FileReader& file) {
  if (file.size() > kMaxFileBytes) {
    throw Error(ErrorCode::bad_data, "[images] '{}': expected at most {} bytes, got {}",
                file.path(), kMaxFileBytes, file.size());
  }
  return read_range(file, 0, file.size());
}

// Throws where it is none. By both ends, as PNG and JPEG files have them; where the end is another
// (bytes may follow a picture), by decoding it.
void check_is_whole(const FileReader& file) {
  constexpr uint64_t kStart = 8;
  constexpr std::string_view kPngEnd("IEND\xAE\x42\x60\x82"), kJpegEnd("\xFF\xD9");
  const uint64_t n = std::min(kStart, file.size());
  const std::vector<std::byte> start = read_range(file, 0, n);
  const std::vector<std::byte> end = read_range(file, file.size() - n, n);
  const std::string_view tail(reinterpret_cast<const char*>(end.data()), end.size());
  if (is_png(start) && tail.ends_with(kPngEnd)) return;
  if (is_jpeg(start) && tail.ends_with(kJpegEnd)) return;
  decode_image(read_picture(file), fmt::format("'{}'", file.path()));
}

class FolderImages : public ImageSource {
 public:
  FolderImages(const Files& files, const std::string& path, const ImageSourceOptions& options)
      : files_(files) {
    for (const DirectoryEntry& entry : files.list(path)) {
      if (entry.name.starts_with('.') || entry.kind != EntryKind::directory) continue;
      classes_.push_back(entry.name);
    }
    const std::vector<std::string> folders = classes_;
    const auto is_known = [&](const std::string& name) {
      return std::ranges::find(options.classes, name) != options.classes.end();
    };
    if (std::ranges::all_of(folders, is_known)) classes_ = options.classes;
    for (const std::string& name : folders) add_class(name, join_path(path, name), options.log);
    if (pictures_.empty()) {
      throw Error(ErrorCode::bad_data,
                  "[images] '{}': expected a folder of pictures for each class, got none", path);
    }
    // What is held out at the end is then of all classes.
    std::ranges::sort(pictures_, {}, [&](const Picture& one) {
      const std::string name = one.path.substr(path.size());
      return std::pair(xxh64(as_bytes(name)), name);
    });
  }

  int64_t n_images() const override { return static_cast<int64_t>(pictures_.size()); }
  int32_t label(int64_t image) const override { return picture(image).label; }
  std::string name_of(int64_t image) const override {
    return fmt::format("'{}'", picture(image).path);
  }
  std::vector<std::string> classes() const override { return classes_; }
  Image decode(int64_t image) const override {
    return decode_image(read_picture(*files_.open(picture(image).path)), name_of(image));
  }

  // Names, sizes and labels, in order.
  uint64_t identity() const override {
    Xxh64 hash;
    for (const Picture& one : pictures_) {
      hash.update(classes_[static_cast<size_t>(one.label)]);
      hash.update(file_name(one.path));
      const uint64_t words[] = {one.n_bytes, static_cast<uint64_t>(one.label)};
      hash.update(words);
    }
    return hash.digest();
  }

 private:
  struct Picture {
    std::string path;
    uint64_t n_bytes = 0;
    int32_t label = 0;
  };
  const Picture& picture(int64_t image) const { return pictures_.at(static_cast<size_t>(image)); }

  void add_class(const std::string& name, const std::string& folder, const Log& log) {
    const auto label = static_cast<int32_t>(std::ranges::find(classes_, name) - classes_.begin());
    const FolderFiles found = files_under(files_, folder);
    for (const std::string& problem : found.problems) log.warning("{}", problem);
    for (const std::string& path : found.paths) {
      if (!has_image_name(path)) continue;
      try {
        const auto file = files_.open(path);
        check_is_whole(*file);
        pictures_.push_back({path, file->size(), label});
      } catch (const Error& error) {
        log.warning("{}; it is left out", error.what());
      }
    }
  }

  const Files& files_;
  std::vector<std::string> classes_;
  std::vector<Picture> pictures_;
};

}  // namespace

std::shared_ptr<const ImageSource> folder_images(const Files& files, const std::string& path,
                                                 const ImageSourceOptions& options) {
  return std::make_shared<FolderImages>(files, path, options);
}

std::shared_ptr<const ImageSource> pack_images(const Files& files, const std::string& path) {
  return std::make_shared<PackImages>(files, path);
}

}  // namespace octet
