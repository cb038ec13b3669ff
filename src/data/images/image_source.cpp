#include "data/images/image_source.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/byte_stream.h"
#include "data/images/image_files.h"

namespace octet {
namespace {

class JoinedImages : public ImageSource {
 public:
  explicit JoinedImages(std::vector<std::shared_ptr<const ImageSource>> sources)
      : sources_(std::move(sources)) {
    for (const auto& source : sources_) ends_.push_back(n_images() + source->n_images());
  }
  int64_t n_images() const override { return ends_.empty() ? 0 : ends_.back(); }
  int32_t label(int64_t image) const override { return of(image).label(image); }
  std::string name_of(int64_t image) const override { return of(image).name_of(image); }
  std::vector<std::string> classes() const override { return sources_.front()->classes(); }
  Image decode(int64_t image) const override { return of(image).decode(image); }
  uint64_t identity() const override {
    Xxh64 hash;
    for (const auto& source : sources_) hash.add(source->identity());
    return hash.digest();
  }

 private:
  // Also makes `image` a number within that source.
  const ImageSource& of(int64_t& image) const {
    CHECK(image >= 0 && image < n_images());
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), image);
    if (end != ends_.begin()) image -= *(end - 1);
    return *sources_[static_cast<size_t>(end - ends_.begin())];
  }

  std::vector<std::shared_ptr<const ImageSource>> sources_;
  std::vector<int64_t> ends_;
};

}  // namespace

std::vector<std::string> class_folders(const Files& files, const std::string& path) {
  std::vector<std::string> names;
  if (!files.exists(path) || !files.is_directory(path)) return names;
  for (const DirectoryEntry& entry : files.list(path)) {
    if (!entry.name.starts_with('.') && entry.kind == EntryKind::directory)
      names.push_back(entry.name);
  }
  return names;
}

std::shared_ptr<const ImageSource> open_images(const Files& files, const std::string& path,
                                               const ImageSourceOptions& options) {
  if (!files.exists(path)) {
    throw Error(ErrorCode::bad_data, "[images] '{}': expected a file or a folder, got neither",
                path);
  }
  if (files.is_directory(path)) return folder_images(files, path, options);
  if (path.ends_with(".pack")) return pack_images(files, path, options);
  if (unpacked_name(path).ends_with(".bin")) return cifar_images(files, path, options);
  return idx_images(files, path, options);
}

std::shared_ptr<const ImageSource> join_images(
    std::vector<std::shared_ptr<const ImageSource>> sources) {
  CHECK(!sources.empty());
  for (const auto& source : sources) {
    if (source->classes() == sources.front()->classes()) continue;
    const bool is_named = !source->classes().empty();
    throw Error(ErrorCode::bad_data,
                "[images] expected folders of classes alone, or labels by number alone, got {} "
                "beside {}",
                (is_named ? source : sources.front())->name_of(0),
                (is_named ? sources.front() : source)->name_of(0));
  }
  if (sources.size() == 1) return std::move(sources.front());
  return std::make_shared<JoinedImages>(std::move(sources));
}

}  // namespace octet
