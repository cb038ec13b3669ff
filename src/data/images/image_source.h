// Labeled pictures of files and folders.
//
// A path is
//   a folder      a folder of pictures (.png, .jpg, .jpeg, at any depth) a class, classes numbered
//                 in the order of their names (C locale), or as the caller numbers them; pictures
//                 follow each other as a hash of their names has it, so that each part holds all
//                 classes
//   IDX           pictures [N, H, W] or [N, H, W, 3] of bytes, whose labels lie beside them: NAME
//                 with "images-idx3" (or -idx4) replaced by "labels-idx1" (MNIST's names)
//   .pack         records [u8 label][u32le n][n bytes of a PNG or JPEG file]
//   .bin          CIFAR-10's records [u8 label][3 x 32 x 32 bytes, CHW]
// Files but packs and pictures may be packed (byte_stream.h); those are held in memory, others are
// read when needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/input_limits.h"
#include "base/log.h"
#include "data/images/image.h"

namespace octet {

// Immutable; may be read from several threads.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual int64_t n_images() const = 0;
  virtual int32_t label(int64_t image) const = 0;        // decodes nothing; >= 0
  virtual std::string name_of(int64_t image) const = 0;  // "'train.pack', image 7"
  // Their names; empty where there are none.
  virtual std::vector<std::string> classes() const { return {}; }
  virtual uint64_t identity() const = 0;  // changes with the content
  // Throws Error{bad_data} or Error{io}, which names the picture, where it is damaged.
  virtual Image decode(int64_t image) const = 0;
};

struct ImageSourceOptions {
  uint64_t max_bytes = input_limits().max_unpacked_bytes;  // of records in memory
  PictureLimits limits = input_limits().pictures;
  std::vector<std::string> classes = {};  // by number; empty: the folder's own, sorted
  Log log = {};
};

// The classes of a folder of pictures: the folders in it, sorted; of a file none.
std::vector<std::string> class_folders(const Files& files, const std::string& path);

// Pictures of a folder that are no whole PNG or JPEG files are left out; warnings name the first
// few and count them, count files with other names by their endings, and name classes without a
// picture. `files` must outlive the result.
// Throws Error{bad_data}, "[images] ...", where there is no picture, a file is none of the above
// or is cut short, or the folder has classes that are not among options.classes, or are there
// twice.
std::shared_ptr<const ImageSource> open_images(const Files& files, const std::string& path,
                                               const ImageSourceOptions& options = {});

// Sources one after the other. Throws Error{bad_data} where one has classes by name and another by
// number alone.
std::shared_ptr<const ImageSource> join_images(
    std::vector<std::shared_ptr<const ImageSource>> sources);

}  // namespace octet
