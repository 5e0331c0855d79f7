#pragma once
/// @file
/// Whether a sanitizer watches what is tested: it takes memory, threads and `new` for itself.

namespace stagecoach::test {

#ifdef STAGECOACH_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace stagecoach::test
