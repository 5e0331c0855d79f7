#pragma once
/// @file
/// The forward and backward of a micro-batch through a stage on a GPU, recorded as CUDA graphs: a pipeline's operations
/// are small, and launching each by itself takes longer than they do (core/replay.h).
///
/// A recording reads and writes fixed memory. So each micro-batch in flight has a pass of its own: its input, what its
/// forward saves for its backward, and its results.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/autograd/backward.h"
#include "core/cuda_backend.h"
#include "core/tensor.h"

namespace stagecoach {

/// The gradients of a stage's parameters, and which recording they belong to.
class RecordedGradients {
 public:
  using Tensors = std::vector<Tensor>;  ///< one per parameter; undefined for one without a gradient

  explicit RecordedGradients(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {}

  const std::vector<Tensor>& parameters() const { return parameters_; }
  /// Returns whether no parameter has a gradient.
  bool none() const;
  /// Returns the gradients, if there are any and they are those of the last `set`; otherwise null.
  std::shared_ptr<const Tensors> recorded() const;
  /// Returns the parameters' gradients.
  std::shared_ptr<const Tensors> collect() const;
  void set(std::shared_ptr<const Tensors> gradients);

 private:
  std::vector<Tensor> parameters_;
  std::shared_ptr<const Tensors> last_;
};

/// What a recording depends on, besides its stage.
struct PassKind {
  std::vector<std::pair<Shape, DType>> inputs;  ///< x and, in the last stage, labels
  bool wants_gradient;                          ///< of x
  bool is_training;
  bool operator==(const PassKind&) const = default;
};

/// A tensor that recordings read. The result of another recording, such as an activation of the stage before, has the
/// same memory after each replay, so it is read in place; any other tensor is copied.
class RecordedInput {
 public:
  /// Returns whether the recordings can read `source`: always, until the first set().
  bool fits(const Tensor& source) const;
  /// Makes the next replay read the elements of `source`. One that is read in place must not change before that.
  void set(const Tensor& source);
  /// Returns an input that is always copied.
  static RecordedInput copy_of(const Tensor& source);
  /// Returns what the recordings read; undefined before the first set().
  const Tensor& tensor() const { return tensor_; }
  bool is_in_place() const { return tensor_.defined() && !is_copied_; }
  /// Returns whether the recordings read memory of `tensor` in place.
  bool reads(const Tensor& tensor) const;

 private:
  Tensor tensor_;
  bool is_copied_ = false;
};

/// For one micro-batch at a time.
class RecordedPass {
 public:
  /// The tensors of a forward.
  struct Tensors {
    Tensor x;            ///< a leaf
    Tensor labels;       ///< only in the last stage
    Tensor output = {};  ///< with its history
    Tensor logits = {};  ///< only in the last stage
  };
  /// Computes the last two of the tensors from the first two.
  using Forward = std::function<void(Tensors& tensors)>;

  /// `gradients` are those to which a backward adds.
  RecordedPass(PassKind kind, std::shared_ptr<RecordedGradients> gradients)
      : kind_(std::move(kind)), gradients_(std::move(gradients)) {}

  const PassKind& kind() const { return kind_; }
  /// Returns whether there still is a handle to a tensor that this pass has lent: the next run would overwrite it.
  bool is_lent() const;
  /// Returns true at the first call: a first run loads kernels and makes one-time allocations, and must not be
  /// recorded.
  bool is_first_use() { return !std::exchange(is_used_, true); }

  /// Returns whether `x` can be the input of this pass.
  bool fits(const Tensor& x) const { return x_.fits(x); }
  /// Appends a handle to `input` to `kept` if the pass reads it in place, and so needs it until it is no longer in use.
  void keep_if_in_place(const Tensor& input, std::vector<Tensor>& kept) const;

  /// Runs `forward`: records it when called first, and then replays the recording. The result is valid until the next
  /// call.
  const Tensors& run_forward(const Tensor& x, const Tensor& labels, const Forward& forward);
  /// Returns a result of this pass for other owners. One that is an input that is read in place (a stage may consist of
  /// views) is copied, as that memory belongs to another pass.
  Tensor lend(const Tensor& result);

  /// Adds to the parameters' gradients, and returns the gradient of x, or an undefined tensor if none is needed. Throws
  /// Error if a saved tensor has been written to since the forward.
  Tensor run_backward(const Tensor& grad);
  /// The first part: returns the gradient of x, and what the second part has to do.
  std::pair<Tensor, DeferredGradients> run_backward_input(const Tensor& grad);
  /// The second part.
  void run_backward_weight();

 private:
  /// A recorded part of a backward.
  struct Recording {
    std::shared_ptr<const RecordedGradients::Tensors> before;  // gradients that it adds to; null if there are none
    std::shared_ptr<const RecordedGradients::Tensors> after = {};
    Tensor grad_x = {};
    std::unique_ptr<cuda::Graph> graph = {};
  };
  /// Computes gradients, adds to those of the parameters, and returns that of x.
  using Work = std::function<Tensor()>;
  Tensor accumulate(std::vector<Recording>& recordings, const Work& work);
  void take_gradient_of_output(const Tensor& grad);

  PassKind kind_;
  std::shared_ptr<RecordedGradients> gradients_;
  bool is_used_ = false;
  std::vector<std::shared_ptr<Storage>> lent_;  // the owners of what was lent since the last forward
  RecordedInput x_;
  Tensors tensors_ = {};
  std::vector<std::shared_ptr<Node>> nodes_;  // the history of the output
  std::unique_ptr<cuda::Graph> forward_;
  RecordedInput grad_;  // of the output
  std::vector<Recording> backwards_;
  Recording input_part_;        // changes no parameter's gradient
  DeferredGradients deferred_;  // what it leaves to the weight part
  std::vector<Recording> weight_parts_;
};

}  // namespace stagecoach
