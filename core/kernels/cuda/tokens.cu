/// @file
/// Operations on sequences of tokens [N, T, C]. Except for the gradient of an embedding, a thread computes one element
/// of the result.

#include <limits>

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/cuda/threads.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

template <class T>
__global__ void transpose_kernel(int count, FastDivmod tokens, FastDivmod width, const T* x, T* y) {
  const auto at = static_cast<int>(element());
  if (at < count) {  // element (n, c, t) of y
    const int line = tokens.quotient(at);
    const int t = tokens.remainder(at, line);
    const int n = width.quotient(line);
    y[at] = x[(n * tokens.value() + t) * width.value() + width.remainder(line, n)];
  }
}

template <class T>
__global__ void add_broadcast_kernel(int count, FastDivmod size, const T* x, const T* b, T* y) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    y[at] = x[at] + b[size.remainder(at, size.quotient(at))];
  }
}

template <class T>
__global__ void token_mean_kernel(int count, int tokens, FastDivmod width, const T* x, T* y) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int n = width.quotient(at);
    const T* from = x + n * tokens * width.value() + width.remainder(at, n);
    T sum = 0;
    for (int t = 0; t < tokens; ++t) {
      sum += from[t * width.value()];
    }
    y[at] = sum / static_cast<T>(tokens);
  }
}

template <class T>
__global__ void token_mean_grad_kernel(int count, FastDivmod tokens, FastDivmod width, const T* grad_y, T* grad_x) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int line = width.quotient(at);
    const int n = tokens.quotient(line);
    grad_x[at] = grad_y[n * width.value() + width.remainder(at, line)] / static_cast<T>(tokens.value());
  }
}

/// A token that the weight lacks gets NaN: a kernel cannot throw as the CPU's does, and must not read elsewhere.
template <class T>
__global__ void embedding_kernel(int count, int rows, FastDivmod width, const std::int32_t* tokens, const T* weight,
                                 T* y) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int n = width.quotient(at);
    const int token = tokens[n];
    y[at] = predicated_load(token >= 0 && token < rows,
                            weight + static_cast<long long>(token) * width.value() + width.remainder(at, n),
                            std::numeric_limits<T>::quiet_NaN());
  }
}

// ---- The gradient of an embedding: the sum of the rows of each token, first within parts of the tokens

inline constexpr int kPart = kThreads;  ///< tokens of a part

struct TokensOfPart {
  int token[kPart];
  int next[kPart];  ///< the next one with the same token, or kPart
  bool is_first[kPart];
};

/// Block b sums the rows of equal tokens of its part, in their order. The sum is where the first of them is, which
/// `first` [parts, vocabulary] says; -1 for a token that the part lacks.
template <class T>
__global__ void sum_equal_tokens_kernel(int count, int vocabulary, int width, const std::int32_t* tokens,
                                        const T* grad_y, T* sums, std::int32_t* first) {
  STAGECOACH_SHARED(TokensOfPart, part);
  const auto i = static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.x) * kPart;
  first += static_cast<long long>(blockIdx.x) * vocabulary;
  for (int token = i; token < vocabulary; token += kThreads) {
    first[token] = -1;
  }
  const int token = begin + i < count ? tokens[begin + i] : -1;
  part.token[i] = token;
  __syncthreads();  // all tokens are there, and all of `first` is -1
  int next = i + 1;
  while (next < kPart && part.token[next] != token) {
    ++next;
  }
  int earlier = i - 1;
  while (earlier >= 0 && part.token[earlier] != token) {
    --earlier;
  }
  part.next[i] = next;
  part.is_first[i] = earlier < 0 && token >= 0 && token < vocabulary;
  if (part.is_first[i]) {
    first[token] = begin + i;
  }
  __syncthreads();  // the chains of equal tokens are complete
  for (int row = i / kWarp; row < kPart; row += kThreads / kWarp) {
    for (int column = i % kWarp; part.is_first[row] && column < width; column += kWarp) {
      const auto at = [&](int token_of_part) { return static_cast<long long>(begin + token_of_part) * width + column; };
      T sum = grad_y[at(row)];
      for (int other = part.next[row]; other < kPart; other = part.next[other]) {
        sum += grad_y[at(other)];
      }
      sums[at(row)] = sum;
    }
  }
}

/// Adds the sums of the parts, in their order. A thread per element of the gradient.
template <class T>
__global__ void sum_token_parts_kernel(int count, int parts, int vocabulary, FastDivmod width, const T* sums,
                                       const std::int32_t* first, T* grad_weight) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int token = width.quotient(at);
    const int column = width.remainder(at, token);
    T sum = 0;
#pragma unroll 8
    for (int part = 0; part < parts; ++part) {
      const int row = first[static_cast<long long>(part) * vocabulary + token];
      sum += predicated_load(row >= 0, sums + static_cast<long long>(row) * width.value() + column);
    }
    grad_weight[at] = sum;
  }
}

namespace {

void transpose(const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "transpose", [&]<class T>() {
    launch_elements(x.device(), transpose_kernel<T>, to_int(x.numel()), FastDivmod(to_int(x.size(1))),
                    FastDivmod(to_int(x.size(2))), x.data<T>(), y.mutable_data<T>());
  });
}

void add_broadcast(const Tensor& x, const Tensor& b, Tensor& y) {
  dispatch_floating(x.dtype(), "add_broadcast", [&]<class T>() {
    launch_elements(x.device(), add_broadcast_kernel<T>, to_int(x.numel()), FastDivmod(to_int(b.numel())), x.data<T>(),
                    b.data<T>(), y.mutable_data<T>());
  });
}

void token_mean(const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "token_mean", [&]<class T>() {
    to_int(x.numel());
    launch_elements(x.device(), token_mean_kernel<T>, to_int(y.numel()), to_int(x.size(1)),
                    FastDivmod(to_int(x.size(2))), x.data<T>(), y.mutable_data<T>());
  });
}

void token_mean_grad(const Tensor& grad_y, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "token_mean_grad", [&]<class T>() {
    launch_elements(grad_y.device(), token_mean_grad_kernel<T>, to_int(grad_x.numel()),
                    FastDivmod(to_int(grad_x.size(1))), FastDivmod(to_int(grad_x.size(2))), grad_y.data<T>(),
                    grad_x.mutable_data<T>());
  });
}

void embedding(const Tensor& tokens, const Tensor& weight, Tensor& y) {
  dispatch_floating(y.dtype(), "embedding", [&]<class T>() {
    launch_elements(y.device(), embedding_kernel<T>, to_int(y.numel()), to_int(weight.size(0)),
                    FastDivmod(to_int(weight.size(1))), tokens.data<std::int32_t>(), weight.data<T>(),
                    y.mutable_data<T>());
  });
}

void embedding_grad(const Tensor& grad_y, const Tensor& tokens, Tensor& grad_weight) {
  dispatch_floating(grad_y.dtype(), "embedding_grad", [&]<class T>() {
    const Device device = grad_y.device();
    const int count = to_int(tokens.numel());
    const int vocabulary = to_int(grad_weight.size(0));
    const int width = to_int(grad_weight.size(1));
    const int parts = (count + kPart - 1) / kPart;
    Workspace<T> sums(grad_y.numel(), device);
    Workspace<std::int32_t> first(std::int64_t{1} * parts * vocabulary, device);
    if (parts > 0) {
      launch(sum_equal_tokens_kernel<T>, static_cast<unsigned>(parts), kThreads, 0, compute_stream(device), count,
             vocabulary, width, tokens.data<std::int32_t>(), grad_y.data<T>(), sums.data(), first.data());
    }
    launch_elements(device, sum_token_parts_kernel<T>, to_int(grad_weight.numel()), parts, vocabulary,
                    FastDivmod(width), sums.data(), first.data(), grad_weight.mutable_data<T>());
  });
}

}  // namespace

void add_tokens(Kernels& table) {
  table.embedding = embedding;
  table.embedding_grad = embedding_grad;
  table.transpose = transpose;
  table.add_broadcast = add_broadcast;
  table.token_mean = token_mean;
  table.token_mean_grad = token_mean_grad;
}

}  // namespace stagecoach::cuda
