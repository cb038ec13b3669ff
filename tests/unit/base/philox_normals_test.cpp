#include <gtest/gtest.h>

#include <vector>

#include "base/philox.h"

namespace octet::base_philox_normals_test {
namespace {

TEST(Philox, a_span_of_normals_holds_those_of_its_elements) {
  const RandomStream stream{.name = name_hash("w"), .seed = 3, .step = 5, .micro_batch = 2};
  for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{1001}}) {
    std::vector<float> values(n);
    stream.normals(values);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(values[i], stream.normal(i)) << i;
  }
}

}  // namespace
}  // namespace octet::base_philox_normals_test
