// The kinds of files that open_images knows (image_source.h).
#pragma once

#include <memory>
#include <string>

#include "data/images/image_source.h"

namespace octet {

std::shared_ptr<const ImageSource> folder_images(const Files& files, const std::string& path,
                                                 const ImageSourceOptions& options);
std::shared_ptr<const ImageSource> pack_images(const Files& files, const std::string& path,
                                               const ImageSourceOptions& options);
std::shared_ptr<const ImageSource> cifar_images(const Files& files, const std::string& path,
                                                const ImageSourceOptions& options);
std::shared_ptr<const ImageSource> idx_images(const Files& files, const std::string& path,
                                              const ImageSourceOptions& options);

}  // namespace octet
