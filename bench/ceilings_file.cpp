#include "bench/ceilings_file.h"

#include <utility>

#include "base/error.h"
#include "base/ordered_json.h"

namespace octet {
namespace {

constexpr std::pair<const char*, double Ceilings::*> kFields[] = {
    {"bytes_per_s", &Ceilings::bytes_per_s},
    {"f32_flops_per_s", &Ceilings::f32_flops_per_s},
    {"narrow_flops_per_s", &Ceilings::narrow_flops_per_s},
    {"code_flops_per_s", &Ceilings::code_flops_per_s}};

OrderedJson devices_in(const Files& files, const std::string& path) {
  if (!files.exists(path)) return OrderedJson::object();
  OrderedJson json = parse_ordered_json(files.read_text(path), path);
  if (!json.is_object())
    throw Error(ErrorCode::bad_data, "[bench] {}: expected an object of devices, got {}", path,
                json.type_name());
  return json;
}

}  // namespace

std::optional<Ceilings> read_ceilings(const Files& files, const std::string& path,
                                      const std::string& device) {
  const OrderedJson devices = devices_in(files, path);
  const auto found = devices.find(device);
  if (found == devices.end()) return std::nullopt;
  Ceilings ceilings;
  for (const auto& [key, field] : kFields) {
    const bool is_rate = found->is_object() && found->contains(key) && (*found)[key].is_number() &&
                         (*found)[key].get<double>() >= 0;
    if (!is_rate)
      throw Error(ErrorCode::bad_data, "[bench] {}: {}: expected a rate {}, got none", path, device,
                  key);
    ceilings.*field = (*found)[key].get<double>();
  }
  return ceilings;
}

void write_ceilings(Files& files, const std::string& path, const std::string& device,
                    const Ceilings& ceilings) {
  OrderedJson devices = devices_in(files, path);
  OrderedJson rates = OrderedJson::object();
  for (const auto& [key, field] : kFields) rates[key] = ceilings.*field;
  devices[device] = std::move(rates);
  files.create_directories(parent_path(path));
  write_atomically(files, path, devices.dump(2) + "\n");
}

}  // namespace octet
