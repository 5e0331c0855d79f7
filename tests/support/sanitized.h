#pragma once
/// @file
/// Whether a sanitizer watches the programs that are tested: it takes memory, threads and `new` for itself.

#if defined(STAGECOACH_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STAGECOACH_TEST_IS_SANITIZED true
#elif defined(__has_feature)
#define STAGECOACH_TEST_IS_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define STAGECOACH_TEST_IS_SANITIZED false
#endif

namespace stagecoach::test {

inline constexpr bool kSanitized = STAGECOACH_TEST_IS_SANITIZED;

}  // namespace stagecoach::test

#undef STAGECOACH_TEST_IS_SANITIZED
