#include "octet/export.h"

#include "base/error.h"
#include "base/named_enum.h"
#include "infer/export.h"
#include "library/public_types.h"

namespace octet {

ExportedModel export_to(const std::string& from, const std::string& to,
                        const ExportSettings& settings) {
  const auto dtype = enum_from_name<ExportDtype>(settings.dtype);
  if (!dtype) {
    throw Error(ErrorCode::invalid_argument,
                "[export] expected as-stored, bf16, f32, fp8-block, fp8-tensor or hif8, got {}",
                settings.dtype);
  }
  if (settings.max_shard_bytes == 0) {
    throw Error(ErrorCode::invalid_argument, "[export] max_shard_bytes: expected 1 or more, got {}",
                settings.max_shard_bytes);
  }
  Files& files = posix_files();
  const Log log = log_of(settings.on_message);
  const ModelSource source = find_model_source(files, from, log);
  const ExportResult result = export_model(
      files, source, to, {.dtype = *dtype, .max_shard = settings.max_shard_bytes, .log = log});
  return {.n_tensors = result.n_tensors, .n_bytes = result.n_bytes, .n_shards = result.n_shards};
}

}  // namespace octet
