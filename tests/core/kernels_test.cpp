// The table of kernels is filled as a whole.

#include "core/kernels/kernels.h"

#include <gtest/gtest.h>

#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

TEST(Kernels, FillEveryRow) {
  for (const Device device : test::devices()) {
    EXPECT_NO_THROW(kernels(device)) << to_string(device);
  }
}

TEST(Kernels, AnEmptyRowIsRefused) {
  EXPECT_TRUE(test::fails_with({"kernel table of cpu", "expected a function in every row", "core/kernels/cpu"}, [] {
    cpu::make_tables({cpu::add_pool, cpu::add_softmax});
  }));
}

}  // namespace
}  // namespace stagecoach
