#include "chapters/common/program.h"

#include "chapters/common/exit_code.h"

namespace stagecoach {

int run_program(int argc, const char* const* argv, const Chapter& chapter, void (*body)(const Settings&)) {
  try {
    return with_exit_code(chapter.program, [&] {
      body(parse_flags(argc, argv, chapter));
      return 0;
    });
  } catch (const HelpShown&) {
    return 0;
  } catch (const Interrupted&) {
    return 130;
  }
}

}  // namespace stagecoach
