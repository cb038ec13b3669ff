#include "config/record.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "base/error.h"
#include "config/value.h"

namespace octet {
namespace {

// Factors of a step's number of sequences.
struct StepSize {
  int64_t batch = 1, accumulate = 1, ranks = 1;

  // -1 where a hand-written record would overflow it.
  int64_t product() const {
    int64_t result = 0;
    const bool overflows = __builtin_mul_overflow(batch, accumulate, &result) ||
                           __builtin_mul_overflow(result, ranks, &result);
    return overflows ? -1 : result;
  }
  std::string text() const {
    return ranks == 1 ? fmt::format("{} x {}", batch, accumulate)
                      : fmt::format("{} x {} x {} ranks", batch, accumulate, ranks);
  }
};

// The value of a key before the changes.
int64_t count_before(const std::vector<ConfigChange>& changes, std::string_view key, int64_t now) {
  for (const ConfigChange& change : changes) {
    if (change.row->path == key) return std::stoll(change.before);
  }
  return now;
}

void check_step_size(const std::vector<ConfigChange>& changes, const ConfigChange& change,
                     const RunConfig& after) {
  const StepSize now{after.train.batch, after.train.accumulate, after.parallel.ranks};
  const StepSize before{count_before(changes, "train.batch", now.batch),
                        count_before(changes, "train.accumulate", now.accumulate),
                        count_before(changes, "parallel.ranks", now.ranks)};
  if (before.product() == now.product()) return;
  throw Error(ErrorCode::invalid_argument,
              "[resume] {}: expected batch x accumulate = {} as in the checkpoint, or others of "
              "this product, got {}",
              change.row->path, before.text(), now.text());
}

}  // namespace

ConfigRecord config_record(const RunConfig& config) {
  ConfigRecord record;
  for (const ConfigRow& row : config_rows()) {
    if (row.on_resume == OnResume::open) continue;
    record[std::string(row.path)] = value_text(row, config);
  }
  return record;
}

RunConfig recorded_config(const ConfigRecord& record, const RunConfig& base,
                          const std::string& where) {
  RunConfig config = base;
  for (const auto& [key, value] : record) {
    const ConfigRow* row = find_config_row(key);
    if (row == nullptr) continue;
    try {
      read_value(*row, YAML::Load(value), {where, key}, config);
    } catch (const YAML::Exception& error) {
      throw Error(ErrorCode::bad_data, "{}: {}: expected a value, got a syntax error: {}", where,
                  key, error.msg);
    } catch (const Error& error) {
      throw Error(ErrorCode::bad_data, error.what());
    }
  }
  return config;
}

std::vector<ConfigChange> config_changes(const RunConfig& before, const RunConfig& after) {
  std::vector<ConfigChange> changes;
  for (const ConfigRow& row : config_rows()) {
    ConfigChange change{&row, value_text(row, before), value_text(row, after)};
    if (change.before != change.after) changes.push_back(std::move(change));
  }
  return changes;
}

void check_changes(const std::vector<ConfigChange>& changes, const RunConfig& after,
                   const ConfigSources& source) {
  for (const ConfigChange& change : changes) {
    const std::string key(change.row->path);
    const OnResume rule = change.row->on_resume;
    if (rule == OnResume::step_size) check_step_size(changes, change, after);
    if (rule == OnResume::same) {
      throw Error(ErrorCode::invalid_argument,
                  "[resume] {}: expected {} as in the checkpoint, got {}", key, change.before,
                  change.after);
    }
    if (rule == OnResume::named && !is_set(source, key)) {
      throw Error(ErrorCode::invalid_argument,
                  "[resume] {}: expected {} as in the checkpoint, got {} (--set {}={} changes it)",
                  key, change.before, change.after, key, change.after);
    }
  }
}

}  // namespace octet
