// The kinds of files that open_images knows (image_source.h), and what they share.
#pragma once

#include <memory>
#include <string>

#include "data/images/image_source.h"

namespace octet {

std::shared_ptr<const ImageSource> folder_images(const Files& files, const std::string& path,
                                                 const ImageSourceOptions& options);
std::shared_ptr<const ImageSource> pack_images(const Files& files, const std::string& path);
std::shared_ptr<const ImageSource> cifar_images(const Files& files, const std::string& path,
                                                const ImageSourceOptions& options);
std::shared_ptr<const ImageSource> idx_images(const Files& files, const std::string& path,
                                              const ImageSourceOptions& options);

// An array of bytes: what an IDX file holds.
struct ByteArray {
  std::vector<int64_t> shape;
  std::string bytes;
};
// IDX: [0][0][8: bytes][rank] [u32be extent] ... data. Source: yann.lecun.com/exdb/mnist. Other
// types of elements, a rank above 4 and data of another length than the extents tell are errors.
ByteArray read_idx(const Files& files, const std::string& path, uint64_t max_bytes);

// A file, unpacked, of at most max_bytes.
std::string read_unpacked(const Files& files, const std::string& path, uint64_t max_bytes);

}  // namespace octet
