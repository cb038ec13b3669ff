#include "io/manifest.h"

#include "fuzz/fuzz_targets.h"
#include "io/checkpoint_marker.h"

namespace octet::fuzz {

// The text as a manifest and as a marker.
void manifest(std::string_view bytes) {
  const std::string text(bytes);
  is_refused([&] {
    const std::string once = manifest_to_json(parse_manifest(text, "a"));
    expect(manifest_to_json(parse_manifest(once, "b")) == once, "the same manifest");
  });
  is_refused([&] {
    const std::string once = marker_to_json(parse_marker(text, "a"));
    expect(marker_to_json(parse_marker(once, "b")) == once, "the same marker");
  });
}

}  // namespace octet::fuzz
