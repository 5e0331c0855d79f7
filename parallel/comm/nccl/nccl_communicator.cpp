#include "parallel/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

#include "core/stream.h"

namespace stagecoach {
namespace {

std::string with_type(const std::string& context, const std::string& type) {
  return fmt::format("{} ({})", context, type);
}

}  // namespace

NcclCommunicator::NcclCommunicator(ControlChannel& control, std::unique_ptr<PointToPointBackend> backend, Group group)
    : ExchangeCommunicator(std::move(group)),
      control_(control),
      backend_(std::move(backend)),
      exceptions_before_(std::uncaught_exceptions()) {
  STAGECOACH_CHECK(clock().kind() == ClockKind::wall, "transport nccl: expected the wall clock, got a virtual clock");
  backend_->introduce_by({.tell =
                              [this](int to, const std::string& text) {
                                control_.post(member(to), key(fmt::format("backend/{}", rank())), text);
                              },
                          .heard = [this](int from) { return control_.take(key(fmt::format("backend/{}", from))); }});
}

NcclCommunicator::~NcclCommunicator() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_before_;
  if (broken_ || unwinding || control_.has_failed()) {
    backend_->abort();
    return;
  }
  try {
    wait([this] { return outbox_.empty(); }, [this] { return error_context("completing the sends"); });
    unclaimed_.empty() ? backend_->close() : backend_->abort();
  } catch (const Error&) {  // pending sends are abandoned; wait() has ended them
  }
}

template <class Call>
auto NcclCommunicator::guarded(const Call& call, const ErrorContext& context) {
  try {
    return call();
  } catch (const BackendError& error) {
    broken_ = true;
    backend_->abort();
    throw CommError(fmt::format("{}: {}", context(), error.what()));
  } catch (const Error&) {
    broken_ = true;
    backend_->abort();
    throw;
  }
}

template <class Done>
void NcclCommunicator::wait(const Done& done, const ErrorContext& context) {
  ControlWait control_wait(control_, wait_policy().stop, context, &wait_policy().renewed);
  const auto serve_until_done = [&] {
    for (serve(); !done(); serve()) {
      control_wait.poll();
    }
  };
  guarded(serve_until_done, context);
}

void NcclCommunicator::serve() {
  backend_->advance();
  std::erase_if(outbox_, [](const std::shared_ptr<Message>& sent) {
    const bool is_done = sent->is_done();
    if (is_done) {
      *sent = {};
    }
    return is_done;
  });
}

NcclCommunicator::Message NcclCommunicator::start(PointToPointBackend::Move::Direction direction, const Tensor& tensor,
                                                  int peer, int tag, const ErrorContext& context) {
  if (tensor.bytes() == 0) {
    return {tensor};
  }
  return {tensor, guarded(
                      [&] {
                        return backend_->start({direction, tensor, peer, tag});
                      },
                      [&] { return with_type(context(), type_of(tensor)); })};
}

class NcclCommunicator::Send final : public Outgoing {
 public:
  Send(NcclCommunicator& comm, std::shared_ptr<Message> message)
      : comm_(comm), message_(std::move(message)), type_(type_of(message_->tensor)) {}
  double wait(const ErrorContext& context) override {
    comm_.wait([this] { return message_->is_done(); }, [&] { return with_type(context(), type_); });
    return comm_.clock().now();
  }
  std::optional<double> completed_at() override { return message_->is_done() ? std::optional(0.0) : std::nullopt; }

 private:
  NcclCommunicator& comm_;
  std::shared_ptr<Message> message_;
  std::string type_;
};

std::shared_ptr<GroupCommunicator::Outgoing> NcclCommunicator::start_send(const Tensor& tensor, int to, int tag,
                                                                          const ErrorContext& context) {
  outbox_.push_back(
      std::make_shared<Message>(start(PointToPointBackend::Move::Direction::out, tensor, to, tag, context)));
  return std::make_shared<Send>(*this, outbox_.back());
}

/// NCCL cannot withdraw a receive: if this one is never waited for, the next receive from the same rank takes it over.
class NcclCommunicator::Receive final : public Incoming {
 public:
  Receive(NcclCommunicator& comm, Message message, int from) : comm_(comm), message_(std::move(message)), from_(from) {}
  ~Receive() override {
    if (message_.tensor.defined()) {
      comm_.unclaimed_.emplace(from_, std::move(message_));
    }
  }

  double wait(const ErrorContext& context) override {
    comm_.wait([this] { return message_.is_done(); }, [&] { return with_type(context(), type_of(message_.tensor)); });
    return comm_.clock().now();
  }
  Tensor take(const ErrorContext& /*context*/) override { return std::exchange(message_, {}).tensor; }

 private:
  NcclCommunicator& comm_;
  Message message_;
  int from_;
};

std::shared_ptr<GroupCommunicator::Incoming> NcclCommunicator::post_receive(const Shape& shape, DType dtype,
                                                                            Device device, int from, int tag,
                                                                            const ErrorContext& context) {
  using Direction = PointToPointBackend::Move::Direction;
  auto unclaimed = unclaimed_.extract(from);  // the oldest
  Message message = unclaimed ? std::move(unclaimed.mapped())
                              : start(Direction::in, Tensor::empty(shape, dtype, device), from, tag, context);
  if (message.tensor.shape() != shape || message.tensor.dtype() != dtype) {
    throw CommError(fmt::format(
        "{0}: an earlier receive of {1} that was never waited for gets the next message, because NCCL cannot cancel a "
        "receive: expected a receive of the same shape and type, got {2}; wait for every receive",
        context(), type_of(message.tensor), type_of(shape, dtype)));
  }
  return std::make_shared<Receive>(*this, std::move(message), from);
}

void NcclCommunicator::start_number(double number, int to, int tag, const ErrorContext& /*context*/) {
  control_.post(member(to), number_key(rank(), tag), fmt::format("{:.17g}", number));
}

double NcclCommunicator::wait_for_number(int from, int tag, const ErrorContext& context) {
  std::optional<double> number;
  wait([&] { return (number = poll_number(from, tag, context)).has_value(); }, context);
  return *number;
}

std::optional<double> NcclCommunicator::poll_number(int from, int tag, const ErrorContext& /*context*/) {
  const std::optional<std::string> text = control_.take(number_key(from, tag));
  return text ? std::optional(std::strtod(text->c_str(), nullptr)) : std::nullopt;
}

void NcclCommunicator::exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) {
  std::vector<PointToPointBackend::Move> moves;
  for (int r = 0; r < size(); ++r) {
    const PeerBuffers& buffer = buffers[static_cast<std::size_t>(r)];
    if (r != rank() && buffer.in.defined() && buffer.in.bytes() > 0) {
      moves.push_back({PointToPointBackend::Move::Direction::in, buffer.in, r});
    }
    if (r != rank() && buffer.out.defined() && buffer.out.bytes() > 0) {
      moves.push_back({PointToPointBackend::Move::Direction::out, buffer.out, r});
    }
  }
  if (moves.empty()) {
    return synchronize({device(), Stream::kCompute});
  }
  const std::string type = type_of(like.defined() ? like : moves.front().tensor);
  const auto context = [&] { return with_type(error_context(operation), type); };
  const auto transfer = guarded([&] { return backend_->exchange(std::move(moves)); }, context);
  wait([&] { return transfer->is_done(); }, context);
}

bool NcclCommunicator::sum_natively(Tensor& tensor) {
  const auto context = [&] { return with_type(error_context("all_reduce"), type_of(tensor)); };
  const auto transfer = guarded([&] { return backend_->all_reduce(tensor); }, context);
  wait([&] { return transfer->is_done(); }, context);
  return true;
}

std::unique_ptr<PointToPointBackend> NcclCommunicator::split_backend(int colour, int key, const char* operation) {
  const auto context = [&] { return error_context(operation); };
  ControlWait control_wait(control_, wait_policy().stop, context, &wait_policy().renewed);
  const auto poll = [&] {
    serve();  // a late rank may still need a message before it calls split
    control_wait.poll();
  };
  return guarded([&] { return backend_->split(colour, key, poll); }, context);
}

std::unique_ptr<Communicator> NcclCommunicator::make_part(Group part) {
  // NCCL requires colours >= 0, so the first member's world rank is the colour.
  auto backend = split_backend(part.members[0], part.rank, "split");
  return std::make_unique<NcclCommunicator>(control_, std::move(backend), std::move(part));
}

std::unique_ptr<Communicator> NcclCommunicator::make_duplicate(Group copy) {
  auto backend = split_backend(0, rank(), "duplicate");
  return std::make_unique<NcclCommunicator>(control_, std::move(backend), std::move(copy));
}

}  // namespace stagecoach
