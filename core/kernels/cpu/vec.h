#pragma once
/// @file
/// Vectors of the machine's width, as the compiler's own types: `a * b + c` on them is a single instruction.

#include <cstring>
#include <utility>

namespace stagecoach::cpu {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kVectorRegisters = 16;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 16;
#endif

/// The number of elements of one vector: 16 floats with AVX-512.
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T, int Lanes>
struct VecOf {
  typedef T Type __attribute__((vector_size(Lanes * sizeof(T))));
};
template <class T, int Lanes = kLanes<T>>
using Vec = typename VecOf<T, Lanes>::Type;

template <class T, int Lanes = kLanes<T>>
inline Vec<T, Lanes> load(const T* from) {
  Vec<T, Lanes> v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

template <class T, int Lanes = kLanes<T>>
inline void store(const Vec<T, Lanes>& v, T* to) {
  std::memcpy(to, &v, sizeof(v));
}

template <class T>
inline Vec<T> broadcast(T value) {
  return value - Vec<T>{};  // not `+`: that would turn -0 into +0, and so cost an instruction
}

namespace detail {

/// Performs one step of the transposition below: exchanges the off-diagonal blocks of `Step` lanes.
template <class T, int Step, int... Lane>
inline void exchange_blocks(Vec<T>& a, Vec<T>& b, std::integer_sequence<int, Lane...>) {
  constexpr int kCount = sizeof...(Lane);
  const Vec<T> upper = __builtin_shufflevector(a, b, ((Lane & Step) == 0 ? Lane : kCount + Lane - Step)...);
  const Vec<T> lower = __builtin_shufflevector(a, b, ((Lane & Step) == 0 ? Lane + Step : kCount + Lane)...);
  a = upper;
  b = lower;
}

template <class T, int Step>
inline void transpose_steps(Vec<T> (&rows)[kLanes<T>]) {
  if constexpr (Step > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T>; ++i) {
      if ((i & Step) == 0) {
        exchange_blocks<T, Step>(rows[i], rows[i + Step], std::make_integer_sequence<int, kLanes<T>>{});
      }
    }
    transpose_steps<T, Step / 2>(rows);
  }
}

}  // namespace detail

/// rows[i][j] becomes rows[j][i], in log2(lanes) steps (Eklundh 1972).
template <class T>
inline void transpose(Vec<T> (&rows)[kLanes<T>]) {
  detail::transpose_steps<T, kLanes<T> / 2>(rows);
}

}  // namespace stagecoach::cpu
