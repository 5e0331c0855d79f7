// PowerSGD: gradients as products of thin matrices. The letters are those of the paper's algorithm 1: M [n, m] becomes
// P [n, r] times the transpose of Q [m, r]; r is the rank in the paper's sense.
//
// A step computes P = M Q with its columns made orthonormal, then Q = M^T P, which is a step of a power iteration. Each
// step begins with the Q of the previous one, so P converges to the directions in which the gradients of many steps are
// large. Both products are linear in M, so the sum of all ranks' M Q is that of the sum of their M, and likewise for
// M^T P: the ranks add up small matrices and get the same result as from the sum of the large ones. (The paper takes
// means; here a rank's gradient is already its share of the whole batch's gradient.)
//
// A rank keeps the error of its own M, M - P (M^T P)^T. Over all ranks these errors add up to the sum of M minus the
// result.

#include <cmath>
#include <utility>

#include "core/kernels/kernels.h"
#include "core/random.h"
#include "core/throw_if.h"
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

/// Subtracts from `column` its projections onto the first `count` of `units`.
void make_orthogonal(const std::vector<Column>& units, std::size_t count, Column& column) {
  for (std::size_t j = 0; j < count; ++j) {
    const double share = dot(units[j], column);
    for (std::size_t i = 0; i < column.size(); ++i) {
      column[i] -= share * units[j][i];
    }
  }
}

/// Makes the columns of p [n, r], r < n, orthonormal (Gram-Schmidt), in double precision and on the CPU, as p is small.
/// A column that depends linearly on earlier ones is replaced by a random one: left at 0, it would make a column of Q
/// 0, and then a column of the next P.
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
      make_orthogonal(columns, j,
                      column);  // again: if little is left of the column, rounding errors of the first pass are large
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

/// Returns a view of a gradient [n, …] as a matrix [n, m].
Tensor as_matrix(const Tensor& gradient) {
  const std::int64_t n = gradient.dims() == 0 ? 1 : gradient.size(0);
  return gradient.alias({n, n == 0 ? 0 : gradient.numel() / n}, gradient.offset());
}

/// Replaces each of `tensors` by its sum over all ranks, in one message.
void sum_together(const std::vector<Tensor>& tensors, Communicator& comm) {
  if (tensors.empty()) {
    return;
  }
  Tensor message = flattened(tensors);
  comm.all_reduce(message);
  unflatten_into(message, tensors);
}

class PowerSgd {
 public:
  PowerSgd(int columns, std::uint64_t seed, std::shared_ptr<CompressionMemory> memory)
      : r_(columns), seed_(seed), memory_(std::move(memory)) {}
  void reduce(Bucket& bucket, Communicator& comm) const;

 private:
  /// The state of a parameter from step to step: handles on tensors of the memory.
  struct Kept {
    Tensor error;  // [n, m]: this rank's accumulated error; during a step M
    Tensor q;      // [r, m]: Q, transposed
  };
  /// A gradient during a step.
  struct Factored {
    const std::string& name;
    Tensor gradient;  // [n, m]: the rank's gradient, and in the end the result
    Tensor p;         // [n, r]
    Kept kept;
  };
  bool is_smaller(const Tensor& gradient) const;
  Kept kept_of(const std::string& name, const Tensor& gradient) const;

  std::int64_t r_;
  std::uint64_t seed_;
  std::shared_ptr<CompressionMemory> memory_;  // keyed by parameter, as the buckets may change
};

/// Returns whether P and Q have fewer elements than `gradient` [n, m]; never true for a vector, [n, 1].
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
  STAGECOACH_CHECK(error.shape() == gradient.shape(),
                   "power_sgd: the gradient of '{0}' has changed its shape: expected {2}, got {1}", name,
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
    device.linear_grad_input(p, kept.q, gradient);              // P Q^T: the part of this rank's M that is sent
    device.add_scaled(gradient, -1, kept.error);                // the part that is not
    message.push_back(kept.q);
  }
  sum_together(message, comm);
  for (auto& [name, gradient, p, kept] : all) {
    device.linear_grad_input(p, kept.q, gradient);  // P Q^T, with the sum of all ranks' Q
  }
}

}  // namespace

ReduceBucket power_sgd(int columns, std::uint64_t seed, std::shared_ptr<CompressionMemory> memory) {
  throw_if<UsageError>(columns < 1, "power_sgd: expected at least 1 column, got {}", columns);
  return [way = PowerSgd(columns, seed, std::move(memory))](Bucket& bucket, Communicator& comm) {
    way.reduce(bucket, comm);
  };
}

}  // namespace stagecoach
