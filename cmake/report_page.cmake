# Sets report_page to the page of a report as one text: the style, and the modules in the order in which they need each
# other. They share one scope, as in the playground (docs/playground/bundle.mjs), so their top-level names must differ.
set(style "")
foreach(file docs/playground/style.css docs/report/report.css)
  file(READ ${PROJECT_SOURCE_DIR}/${file} text)
  string(APPEND style "${text}")
endforeach()
set(modules "")
set(sources docs/playground/style.css docs/report/report.css docs/report/report.html)
foreach(module
    playground/library playground/painter playground/cause playground/charts playground/timeline
    report/text report/words report/curves report/links report/steps report/report)
  list(APPEND sources docs/${module}.js)
  file(READ ${PROJECT_SOURCE_DIR}/docs/${module}.js text)
  string(REGEX REPLACE "(^|\n)import [^\n]*" "\\1" text "${text}")
  string(REGEX REPLACE "(^|\n)export " "\\1" text "${text}")
  string(APPEND modules "${text}")
endforeach()
file(READ ${PROJECT_SOURCE_DIR}/docs/report/report.html report_page)
string(REPLACE "{{style}}" "${style}" report_page "${report_page}")
string(REPLACE "{{modules}}" "${modules}" report_page "${report_page}")
list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
