// Lets the tests of kernels' costs count launches, where GPUs are emulated.

#include "tests/core/kernel_costs.h"
#include "tests/emulation/machine.h"

namespace stagecoach::test {
namespace {

[[maybe_unused]] const bool kCountsWork = [] {
  pieces_of_work = [] { return cuda::emulation::pieces_of_work().load(); };
  return true;
}();

}  // namespace
}  // namespace stagecoach::test
