// Packs and folders of PNG and JPEG files, read when needed.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/few.h"
#include "base/hash.h"
#include "data/images/image_files.h"
#include "data/images/picture_notes.h"
#include "data/text_files.h"

namespace octet {
namespace {

std::vector<std::byte> read_range(const FileReader& file, uint64_t at, uint64_t n) {
  std::vector<std::byte> bytes(n);
  file.read_at(at, bytes);
  return bytes;
}

class PackImages : public ImageSource {
 public:
  PackImages(const Files& files, const std::string& path, const ImageSourceOptions& options)
      : file_(files.open(path)), limits_(options.limits) {
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
    return decode_image(read_range(*file_, at, n), name_of(image), limits_);
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
  PictureLimits limits_;
  std::vector<Record> records_;
};

bool has_image_name(const std::string& path) {
  std::string name = file_name(path);
  for (char& ch : name) ch = ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch + 'a' - 'A') : ch;
  return name.ends_with(".png") || name.ends_with(".jpg") || name.ends_with(".jpeg");
}

std::vector<std::byte> read_picture(const FileReader& file, const PictureLimits& limits) {
  if (file.size() > limits.max_file_bytes) {
    throw Error(ErrorCode::bad_data, "[images] '{}': expected at most {} bytes, got {}",
                file.path(), limits.max_file_bytes, file.size());
  }
  return read_range(file, 0, file.size());
}

// Throws where it is none. By both ends, as PNG and JPEG files have them; where the end is another
// (bytes may follow a picture), by decoding it.
void check_is_whole(const FileReader& file, const PictureLimits& limits) {
  constexpr uint64_t kStart = 8;
  constexpr std::string_view kPngEnd("IEND\xAE\x42\x60\x82"), kJpegEnd("\xFF\xD9");
  const uint64_t n = std::min(kStart, file.size());
  const std::vector<std::byte> start = read_range(file, 0, n);
  const std::vector<std::byte> end = read_range(file, file.size() - n, n);
  const std::string_view tail(reinterpret_cast<const char*>(end.data()), end.size());
  if (is_png(start) && tail.ends_with(kPngEnd)) return;
  if (is_jpeg(start) && tail.ends_with(kJpegEnd)) return;
  decode_image(read_picture(file, limits), fmt::format("'{}'", file.path()), limits);
}

// Files of a folder that give no picture, for its warnings.
class Unread {
 public:
  Unread(const std::string& folder, const Log& log) : folder_(folder), log_(log) {}
  void add_left_out(const std::string& why) {
    if (++n_left_out_ <= kMaxWarnings) log_.warning("{}; it is left out", why);
  }
  void add_links(int64_t n) { n_links_ += n; }
  void add_part(std::string_view part, const std::string& path) {
    Pictures& pictures = parts_[part];
    if (++pictures.n == 1) pictures.first = path;
  }
  void add_other(const std::string& path) {
    const std::string name = file_name(path);
    const size_t dot = name.rfind('.');
    if (endings_.empty()) first_ = path;
    ++endings_[dot == name.npos ? "no ending" : name.substr(dot)];
  }
  void finish() const {
    if (n_left_out_ > kMaxWarnings)
      log_.warning("[images] '{}': {} pictures are left out in all", folder_, n_left_out_);
    if (n_links_ > 0)
      log_.warning("[images] '{}': {} symbolic links are left out", folder_, n_links_);
    for (const auto& [part, pictures] : parts_) {
      log_.warning("[images] '{}': pictures that {}: {}; the first is '{}'", folder_, part,
                   pictures.n, pictures.first);
    }
    if (endings_.empty()) return;
    std::vector<std::string> counts;
    for (const auto& [ending, n] : endings_) counts.push_back(fmt::format("{} ({})", ending, n));
    log_.warning(
        "[images] '{}': files that do not end in .png, .jpg or .jpeg are left out: {}; the first "
        "is '{}'",
        folder_, first_few(counts), first_);
  }

 private:
  const std::string& folder_;
  const Log& log_;
  int64_t n_left_out_ = 0, n_links_ = 0;
  std::map<std::string, int64_t> endings_;
  std::string first_;
  struct Pictures {
    int64_t n = 0;
    std::string first;
  };
  std::map<std::string_view, Pictures> parts_;  // by what is not read of them
};

// By number, for folders with these names.
const std::vector<std::string>& numbered(const std::vector<std::string>& folders,
                                         const ImageSourceOptions& options,
                                         const std::string& path) {
  const std::vector<std::string>& classes = options.classes;
  if (classes.empty()) return folders;
  std::vector<std::string> others;
  for (const std::string& name : folders) {
    const auto n = std::ranges::count(classes, name);
    if (n == 0) others.push_back(name);
    if (n < 2) continue;
    throw Error(ErrorCode::bad_data, "[images] '{}': expected one class '{}', got {} of that name",
                path, name, n);
  }
  if (others.empty()) return classes;
  throw Error(ErrorCode::bad_data, "[images] '{}': expected classes of {}, got {}", path,
              first_few(classes), first_few(others));
}

class FolderImages : public ImageSource {
 public:
  FolderImages(const Files& files, const std::string& path, const ImageSourceOptions& options)
      : files_(files), limits_(options.limits) {
    const std::vector<std::string> folders = class_folders(files, path);
    classes_ = numbered(folders, options, path);
    Unread unread(path, options.log);
    for (const DirectoryEntry& entry : files.list(path)) {
      if (entry.name.starts_with('.')) continue;
      if (entry.kind == EntryKind::link) unread.add_links(1);
      if (entry.kind == EntryKind::file && has_image_name(entry.name))
        unread.add_left_out(
            fmt::format("[images] '{}' is in no class's folder", join_path(path, entry.name)));
    }
    for (const std::string& name : folders) {
      const size_t n_before = pictures_.size();
      add_class(name, join_path(path, name), options.log, unread);
      if (pictures_.size() == n_before)
        options.log.warning("[images] '{}': class '{}' has no picture", path, name);
    }
    unread.finish();
    if (pictures_.empty()) {
      throw Error(ErrorCode::bad_data,
                  "[images] '{}': expected a folder of pictures for each class, got none", path);
    }
    // Pictures held out at the end are then of all classes.
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
    return decode_image(read_picture(*files_.open(picture(image).path), limits_), name_of(image),
                        limits_);
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

  void add_class(const std::string& name, const std::string& folder, const Log& log,
                 Unread& unread) {
    const auto label = static_cast<int32_t>(std::ranges::find(classes_, name) - classes_.begin());
    const FolderFiles found = files_under(files_, folder);
    for (const std::string& problem : found.problems) log.warning("{}", problem);
    unread.add_links(found.n_links);
    for (const std::string& path : found.paths) {
      if (!has_image_name(path)) {
        unread.add_other(path);
        continue;
      }
      try {
        const auto file = files_.open(path);
        check_is_whole(*file, limits_);
        constexpr uint64_t kBeginning = 4096;  // where files say what a picture has
        for (const std::string_view part :
             unread_parts(read_range(*file, 0, std::min(kBeginning, file->size()))))
          unread.add_part(part, path);
        pictures_.push_back({path, file->size(), label});
      } catch (const Error& error) {
        unread.add_left_out(error.what());
      }
    }
  }

  const Files& files_;
  PictureLimits limits_;
  std::vector<std::string> classes_;
  std::vector<Picture> pictures_;
};

}  // namespace

std::shared_ptr<const ImageSource> folder_images(const Files& files, const std::string& path,
                                                 const ImageSourceOptions& options) {
  return std::make_shared<FolderImages>(files, path, options);
}

std::shared_ptr<const ImageSource> pack_images(const Files& files, const std::string& path,
                                               const ImageSourceOptions& options) {
  return std::make_shared<PackImages>(files, path, options);
}

}  // namespace octet
