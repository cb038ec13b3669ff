// A model's folder of a residual network of CIFAR-10 as public weights have it: data of
// OCTET_TEST_DATA.
#pragma once

#include <fmt/format.h>

#include <string>

#include "cli/program_run.h"

namespace octet::test {

inline const std::string kCifarData = OCTET_TEST_DATA "/data/";
inline const std::string kCifarWeights = kCifarData + "weights/cifar_resnet/";

// "resnetN" of n layers, and its evaluation in f32.
inline std::string put_cifar_folder(const ScratchFolder& folder, int layers) {
  const std::string name = fmt::format("resnet{}", layers);
  folder.put(name + "/config.json",
             fmt::format(R"({{"model_type": "resnet", "cifar": true, "image_size": 32,
                 "embedding_size": 16, "depths": [{0}, {0}, {0}], "hidden_sizes": [16, 32, 64],
                 "layer_type": "basic", "num_labels": 10}})",
                         (layers - 2) / 6));
  folder.put(name + "/preprocessor_config.json",
             R"({"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]})");
  folder.put(name + "/model.safetensors",
             posix_files().read_text(kCifarWeights + name + ".safetensors"));
  return name;
}
inline Outcome evaluate_cifar(const ScratchFolder& folder, const std::string& name,
                              const std::string& flags) {
  return run_program(
      folder, fmt::format("eval --json --model {} --task-data {}images --tasks cifar10 --recipe "
                          "fp32 {}",
                          folder / name, kCifarData, flags));
}

}  // namespace octet::test
