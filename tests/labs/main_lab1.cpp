#include "chapters/01_single_device/lab/accumulate.h"
#include "chapters/01_single_device/lab/scaled_tanh.h"
#include "tests/labs/lab1.h"
#include "tests/labs/run_lab.h"

int main(int argc, char** argv) {
  using namespace stagecoach;
  return labs::run_lab(argc, argv, 1, [] {
    return labs::lab1::criteria({.scaled_tanh = lab::scaled_tanh, .accumulate = lab::accumulate});
  });
}
