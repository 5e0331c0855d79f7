#include "chapters/common/bug_communicators.h"

#include <optional>

namespace stagecoach {
namespace {

/// Passes every call on.
class PassingCommunicator : public Communicator {
 public:
  explicit PassingCommunicator(Communicator& comm) : comm_(comm) {}

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  Device device() const override { return comm_.device(); }
  Clock& clock() override { return comm_.clock(); }
  PendingSend send_async(const Tensor& tensor, int to, int tag) override { return comm_.send_async(tensor, to, tag); }
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override {
    return comm_.receive_async(shape, dtype, from, tag);
  }
  void send_number(double number, int to, int tag) override { comm_.send_number(number, to, tag); }
  double receive_number(int from, int tag) override { return comm_.receive_number(from, tag); }
  std::optional<double> try_receive_number(int from, int tag) override { return comm_.try_receive_number(from, tag); }
  void all_reduce(Tensor& tensor) override { comm_.all_reduce(tensor); }
  void reduce(Tensor& tensor, int root) override { comm_.reduce(tensor, root); }
  void broadcast(Tensor& tensor, int root) override { comm_.broadcast(tensor, root); }
  std::vector<Tensor> all_gather(const Tensor& tensor) override { return comm_.all_gather(tensor); }
  Tensor reduce_scatter(const Tensor& tensor) override { return comm_.reduce_scatter(tensor); }
  void barrier() override { comm_.barrier(); }
  std::unique_ptr<Communicator> split(int colour, int key) override { return comm_.split(colour, key); }
  std::map<int, double> bytes_sent() const override { return comm_.bytes_sent(); }
  std::unique_ptr<Communicator> duplicate() override { return comm_.duplicate(); }
  void set_spinning(bool spinning) override { comm_.set_spinning(spinning); }
  void leave_record_in(const std::filesystem::path& folder) override { comm_.leave_record_in(folder); }
  void renew_waits() override { comm_.renew_waits(); }
  void abort() override { comm_.abort(); }

 private:
  Communicator& comm_;
};

/// Bug::send_order: a send returns when its receiver has the message.
class WaitingSends final : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  PendingSend send_async(const Tensor& tensor, int to, int tag) override {
    const PendingSend pending = PassingCommunicator::send_async(tensor, to, tag);
    pending.wait();
    return pending;
  }
};

/// Bug::tag_twice: activations have one tag, and gradients another, whatever their stage and micro-batch. (The
/// chapters' tags are even for activations and odd for gradients.)
class OneTagPerDirection final : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  PendingSend send_async(const Tensor& tensor, int to, int tag) override {
    return PassingCommunicator::send_async(tensor, to, tag % 2);
  }
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override {
    return PassingCommunicator::receive_async(shape, dtype, from, tag % 2);
  }
};

}  // namespace

std::unique_ptr<Communicator> communicator_with(Bug bug, Communicator& comm) {
  switch (bug) {
    case Bug::send_order:
      return std::make_unique<WaitingSends>(comm);
    case Bug::tag_twice:
      return std::make_unique<OneTagPerDirection>(comm);
    default:
      return nullptr;
  }
}

}  // namespace stagecoach
