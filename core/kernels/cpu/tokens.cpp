#include <algorithm>

#include "core/kernels/cpu/tables.h"
#include "core/kernels/cpu/transpose.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"
#include "core/tensor.h"

namespace stagecoach::cpu {
namespace {

void transpose(const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "transpose", [&]<class T>() {
    const std::int64_t rows = x.size(1);
    const std::int64_t columns = x.size(2);
    const T* from = x.data<T>();  // [N, T, C]
    T* to = y.mutable_data<T>();  // [N, C, T]
    parallel_for(x.device(), x.size(0), [=](std::int64_t n) {
      const std::int64_t start = n * rows * columns;
      transpose_block(rows, columns, from + start, columns, to + start, rows);
    });
  });
}

void add_broadcast(const Tensor& x, const Tensor& b, Tensor& y) {
  dispatch_floating(x.dtype(), "add_broadcast", [&]<class T>() {
    const std::int64_t size = b.numel();
    const T* from = x.data<T>();    // [N, S]
    const T* added = b.data<T>();   // [S]
    T* sums = y.mutable_data<T>();  // [N, S]
    parallel_for(x.device(), x.size(0), [=](std::int64_t n) {
      for (std::int64_t i = 0; i < size; ++i) {
        sums[n * size + i] = from[n * size + i] + added[i];
      }
    });
  });
}

void token_mean(const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "token_mean", [&]<class T>() {
    const std::int64_t tokens = x.size(1);
    const std::int64_t width = x.size(2);
    const T* in = x.data<T>();       // [N, T, C]
    T* means = y.mutable_data<T>();  // [N, C]
    parallel_for(x.device(), x.size(0), [=](std::int64_t n) {
      T* mean = means + n * width;
      std::fill_n(mean, width, T(0));
      for (std::int64_t t = 0; t < tokens; ++t) {
        const T* token = in + (n * tokens + t) * width;
        for (std::int64_t c = 0; c < width; ++c) {
          mean[c] += token[c];
        }
      }
      for (std::int64_t c = 0; c < width; ++c) {
        mean[c] /= static_cast<T>(tokens);
      }
    });
  });
}

void token_mean_grad(const Tensor& grad_y, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "token_mean_grad", [&]<class T>() {
    const std::int64_t tokens = grad_x.size(1);
    const std::int64_t width = grad_x.size(2);
    const T* grad = grad_y.data<T>();   // [N, C]
    T* out = grad_x.mutable_data<T>();  // [N, T, C]
    parallel_for(grad_y.device(), grad_x.size(0), [=](std::int64_t n) {
      for (std::int64_t i = 0; i < tokens * width; ++i) {
        out[n * tokens * width + i] = grad[n * width + i % width] / static_cast<T>(tokens);
      }
    });
  });
}

void embedding(const Tensor& tokens, const Tensor& weight, Tensor& y) {
  dispatch_floating(weight.dtype(), "embedding", [&]<class T>() {
    const std::int64_t width = weight.size(1);
    const auto* token = tokens.data<std::int32_t>();  // [N]
    const T* rows = weight.data<T>();                 // [V, C]
    T* out = y.mutable_data<T>();                     // [N, C]
    for (std::int64_t n = 0; n < tokens.numel(); ++n) {
      STAGECOACH_CHECK(token[n] >= 0 && token[n] < weight.size(0),
                       "embedding: expected tokens from 0 to {}, got {} at position {}", weight.size(0) - 1, token[n],
                       n);
      std::copy_n(rows + token[n] * width, width, out + n * width);
    }
  });
}

void embedding_grad(const Tensor& grad_y, const Tensor& tokens, Tensor& grad_weight) {
  dispatch_floating(grad_y.dtype(), "embedding_grad", [&]<class T>() {
    constexpr std::int64_t kColumns = 64;  // per iteration of the threads, which all read the tokens in order
    const std::int64_t width = grad_weight.size(1);
    const std::int64_t count = tokens.numel();
    const auto* token = tokens.data<std::int32_t>();  // [N]
    const T* grad = grad_y.data<T>();                 // [N, C]
    T* sums = grad_weight.mutable_data<T>();          // [V, C]
    std::fill_n(sums, grad_weight.numel(), T(0));
    parallel_for(grad_y.device(), (width + kColumns - 1) / kColumns, [=](std::int64_t part) {
      const std::int64_t end = std::min(width, (part + 1) * kColumns);
      for (std::int64_t n = 0; n < count; ++n) {
        for (std::int64_t c = part * kColumns; c < end; ++c) {
          sums[token[n] * width + c] += grad[n * width + c];
        }
      }
    });
  });
}

}  // namespace

void add_tokens(Tables& tables) {
  tables.add<&Kernels::transpose>("transpose", transpose);
  tables.add<&Kernels::add_broadcast>("add_broadcast", add_broadcast);
  tables.add<&Kernels::token_mean>("token_mean", token_mean);
  tables.add<&Kernels::token_mean_grad>("token_mean_grad", token_mean_grad);
  tables.add<&Kernels::embedding>("embedding", embedding);
  tables.add<&Kernels::embedding_grad>("embedding_grad", embedding_grad);
}

}  // namespace stagecoach::cpu
