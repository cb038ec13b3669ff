// TensorBoard's event files: scalars by step.
//
// A file is a sequence of TFRecords: u64 length, u32 masked crc32c of those 8 bytes, the bytes, u32
// masked crc32c of the bytes, all little-endian; mask(c) = rotate_right(c, 15) + 0xa282ead8. Each
// holds one Event message: wall_time (1, double), step (2, varint), file_version (3, string),
// summary (5) or session_log (7). A summary's values (1) have a tag (1) and a simple_value (2,
// float). Source: TensorFlow, lib/io/record_writer and util/event.proto.
//
// Each start of a run writes a file of its own, which begins with the session_log START of its
// first step: readers then drop what older files say of that step and later ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/files.h"

namespace octet {

struct Scalar {
  std::string_view tag;
  double value = 0;  // stored as f32
};

// CRC-32C (Castagnoli), reflected polynomial 0x82F63B78, and TensorFlow's masked form of it.
uint32_t crc32c(std::span<const std::byte> bytes);
uint32_t masked_crc32c(std::span<const std::byte> bytes);

// The payload as one record.
std::string event_record(std::string_view payload);

struct EventFileStart {
  double wall_time = 0;  // seconds since 1970
  std::string host;
  int64_t process = 0;
  int64_t first_step = 1;  // that this file will hold
};

class EventFile {
 public:
  // FOLDER/events.out.tfevents.<seconds>.<host>.<process>.<first step>, with another number behind
  // it where that name is taken.
  EventFile(Files& files, const std::string& folder, const EventFileStart& start);

  // All scalars of a step in one event. Values that are not finite are stored as they are.
  // The bytes that were written.
  size_t append(double wall_time, int64_t step, std::span<const Scalar> scalars);

 private:
  std::unique_ptr<FileWriter> file_;
};

}  // namespace octet
