// A tensor file that several ranks write at once, each some of its bytes: the result is the file
// that one rank would write.
#pragma once

#include <cstdint>
#include <string>

#include "base/files.h"
#include "io/safetensors.h"

namespace octet {

// The bytes before the tensors, which one of the ranks writes: this one or another.
enum class FileHeader { no, yes };

// Writes the parts that the tensors give (TensorSource::part) into a file that is there, each where
// it belongs, and syncs it. Gives their PositionalHash, so that nobody reads anything again.
uint64_t write_part(Files& files, const std::string& path, const SafetensorsLayout& layout,
                    FileHeader header);

}  // namespace octet
