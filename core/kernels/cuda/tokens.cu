/// @file
/// Operations on sequences of tokens [N, T, C]; a thread computes one element of the result.

#include <limits>

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/fast_divmod.cuh"
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

/// A thread searches all tokens for those of its element's row: they are few, in the cache, and the same for a warp,
/// and the order of the sum is that of the tokens.
template <class T>
__global__ void embedding_grad_kernel(int count, int token_count, FastDivmod width, const T* grad_y,
                                      const std::int32_t* tokens, T* grad_weight) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int row = width.quotient(at);
    const int column = width.remainder(at, row);
    T sum = 0;
    for (int n = 0; n < token_count; ++n) {
      if (tokens[n] == row) {
        sum += grad_y[static_cast<long long>(n) * width.value() + column];
      }
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
    launch_elements(grad_y.device(), embedding_grad_kernel<T>, to_int(grad_weight.numel()), to_int(tokens.numel()),
                    FastDivmod(to_int(grad_weight.size(1))), grad_y.data<T>(), tokens.data<std::int32_t>(),
                    grad_weight.mutable_data<T>());
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
