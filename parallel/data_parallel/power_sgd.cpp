// PowerSGD: gradients as products of thin matrices. The letters are those of the paper's algorithm 1: M [n, m] becomes
// P [n, r] times the transpose of Q [m, r]; r is what it calls the rank.
//
// P = M Q with its columns made orthonormal, then Q = M^T P: a step of a power iteration. As each step begins with the
// Q of the last one, P turns to the directions in which the gradients of many steps are large. Both products are linear
// in M. So the sum of all ranks' P is the P of the sum of their M, and that of their Q likewise: ranks add up what is
// small and get what they would have got from all that is large. (The paper takes means; here a rank's gradient already
// is its share of the whole batch's.)
//
// A rank keeps what its own M lost, M - P (M^T P)^T. Over all ranks this adds up to the sum of M less the result.

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/kernels/kernels.h"
#include "core/random.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/data_parallel/flat.h"

namespace stagecoach {
namespace {

using Column = std::vector<double>;

double dot(const Column& a, const Column& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// Takes from `column` what it has of the first `count` of `units`.
void make_orthogonal(const std::vector<Column>& units, std::size_t count, Column& column) {
  for (std::size_t j = 0; j < count; ++j) {
    const double share = dot(units[j], column);
    for (std::size_t i = 0; i < column.size(); ++i) {
      column[i] -= share * units[j][i];
    }
  }
}

/// Makes the columns of p [n, r], r < n, orthonormal (Gram-Schmidt): in double, and on the host, as p is small. A
/// column without a direction of its own gets a random one. Left at 0 it would make a column of Q 0, and that the next
/// P's.
void make_orthonormal(Tensor& p, const Philox& random) {
  const auto n = static_cast<std::size_t>(p.size(0));
  const auto r = static_cast<std::size_t>(p.size(1));
  dispatch_floating(p.dtype(), "power_sgd", [&]<class T>() {
    std::vector<T> values = p.to_vector<T>();
    std::vector<Column> columns(r, Column(n));
    for (std::size_t j = 0; j < r; ++j) {
      Column& column = columns[j];
      for (std::size_t i = 0; i < n; ++i) {
        column[i] = static_cast<double>(values[i * r + j]);
      }
      const double whole = dot(column, column);
      make_orthogonal(columns, j, column);
      if (dot(column, column) <= 1e-24 * whole) {
        for (std::size_t i = 0; i < n; ++i) {
          column[i] = random.normal(j * n + i);
        }
      }
      make_orthogonal(columns, j, column);  // again: beside a small rest the first one's rounding errors are large
      const double length = std::sqrt(dot(column, column));
      for (std::size_t i = 0; i < n; ++i) {
        column[i] /= length;
        values[i * r + j] = static_cast<T>(column[i]);
      }
    }
    p.copy_from(Tensor::from(values, p.shape()));
  });
}

Tensor random_matrix(const Shape& shape, const Philox& random, const Tensor& like) {
  return dispatch_floating(like.dtype(), "power_sgd", [&]<class T>() {
    std::vector<T> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<T>(random.normal(i));
    }
    return Tensor::from(values, shape, like.device());
  });
}

/// [n, …] as [n, m]: the same elements.
Tensor as_matrix(const Tensor& gradient) {
  const std::int64_t n = gradient.dims() == 0 ? 1 : gradient.size(0);
  return gradient.alias({n, n == 0 ? 0 : gradient.numel() / n}, gradient.offset());
}

/// Replaces each of `tensors` by its sum over all ranks. They travel as one message.
void sum_together(const std::vector<Tensor>& tensors, Communicator& comm) {
  if (tensors.empty()) {
    return;
  }
  Tensor message = flattened(tensors);
  comm.all_reduce(message);
  take_values(message, tensors);
}

class PowerSgd {
 public:
  PowerSgd(int columns, std::uint64_t seed, std::shared_ptr<CompressionMemory> memory)
      : r_(columns), seed_(seed), memory_(std::move(memory)) {}
  void reduce(Bucket& bucket, Communicator& comm) const;

 private:
  /// What stays of a parameter from step to step: handles on the memory's tensors.
  struct Kept {
    Tensor error;  // [n, m]: what this rank's contributions have lost so far; during a step M
    Tensor q;      // [r, m]: Q, transposed
  };
  /// A gradient during a step.
  struct Factored {
    const std::string& name;
    Tensor gradient;  // [n, m]: M's part of it, and in the end the result
    Tensor p;         // [n, r]
    Kept kept;
  };
  bool is_smaller(const Tensor& gradient) const;
  Kept kept_of(const std::string& name, const Tensor& gradient) const;

  std::int64_t r_;
  std::uint64_t seed_;
  std::shared_ptr<CompressionMemory> memory_;  // by parameter: the buckets may change
};

/// Whether P and Q have fewer elements than it, [n, m]. Those of a vector, [n, 1], never have.
bool PowerSgd::is_smaller(const Tensor& gradient) const {
  return r_ * (gradient.size(0) + gradient.size(1)) < gradient.numel();
}

PowerSgd::Kept PowerSgd::kept_of(const std::string& name, const Tensor& gradient) const {
  Tensor& error = (*memory_)[name + ".error"];
  Tensor& q = (*memory_)[name + ".q"];
  if (!error.defined()) {
    error = Tensor::zeros(gradient.shape(), gradient.dtype(), gradient.device());
    q = random_matrix({r_, gradient.size(1)}, Philox(seed_, name), gradient);
  }
  STAGECOACH_CHECK(error.shape() == gradient.shape(), "power_sgd: '{}' is {}, and was {} before", name,
                   describe(gradient), describe(error));
  return {error, q};
}

void PowerSgd::reduce(Bucket& bucket, Communicator& comm) const {
  const Kernels& device = kernels(bucket.flat.device());
  std::vector<Factored> all;
  std::vector<Tensor> message;
  for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
    const Tensor gradient = as_matrix(bucket.gradients[i]);
    if (!is_smaller(gradient)) {
      message.push_back(gradient);
      continue;
    }
    Kept kept = kept_of(bucket.names[i], gradient);
    Tensor p = Tensor::empty({gradient.size(0), r_}, gradient.dtype(), gradient.device());
    device.add_scaled(gradient, 1, kept.error);  // M = gradient + error
    device.linear(kept.error, kept.q, {}, p);    // P = M Q
    all.push_back({bucket.names[i], gradient, p, kept});
    message.push_back(p);
  }
  sum_together(message, comm);
  message.clear();
  Tensor no_bias;
  for (auto& [name, gradient, p, kept] : all) {
    make_orthonormal(p, Philox(seed_, name + ", a direction"));
    device.linear_grad_weight(p, kept.error, kept.q, no_bias);  // Q = M^T P
    device.linear_grad_input(p, kept.q, gradient);              // P Q^T: what arrives of this rank's M
    device.add_scaled(gradient, -1, kept.error);                // and what does not
    message.push_back(kept.q);
  }
  sum_together(message, comm);
  for (auto& [name, gradient, p, kept] : all) {
    device.linear_grad_input(p, kept.q, gradient);  // P Q^T, of all ranks
  }
}

}  // namespace

ReduceBucket power_sgd(int columns, std::uint64_t seed, std::shared_ptr<CompressionMemory> memory) {
  if (columns < 1) {
    throw UsageError(fmt::format("power_sgd: {} columns; at least 1 is needed", columns));
  }
  return [way = PowerSgd(columns, seed, std::move(memory))](Bucket& bucket, Communicator& comm) {
    way.reduce(bucket, comm);
  };
}

}  // namespace stagecoach
