#include "tests/support/sanitized.h"

namespace stagecoach::test {

#ifdef STAGECOACH_SANITIZED
const bool kSanitized = true;
#else
const bool kSanitized = false;
#endif

}  // namespace stagecoach::test
