package tidegate.pulsar;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.classes;
import static com.tngtech.archunit.library.Architectures.layeredArchitecture;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.domain.JavaField;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import com.tngtech.archunit.library.dependencies.SliceAssignment;
import com.tngtech.archunit.library.dependencies.SliceIdentifier;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The shim's rooms: imports run one way, no circle, three classes alone are Pulsar's to load; guarded parts say so. */
class RoomsTest {
    private static final JavaClasses SHIM = new ClassFileImporter()
            .withImportOption(new ImportOption.DoNotIncludeTests()).importPackages("tidegate.pulsar");

    /** Each top-level class with its nested ones. */
    private static final SliceAssignment TOP_LEVEL_CLASSES = new SliceAssignment() {
        @Override
        public SliceIdentifier getIdentifierOf(JavaClass one) {
            String name = one.getName();
            if (!name.startsWith("tidegate.")) {
                return SliceIdentifier.ignore();
            }
            int nested = name.indexOf('$');
            return SliceIdentifier.of(nested < 0 ? name : name.substring(0, nested));
        }

        @Override
        public String getDescription() {
            return "top-level classes";
        }
    };

    @Test
    void roomsKnowEachOtherOneWay() {
        layeredArchitecture().consideringOnlyDependenciesInLayers()
                .layer("pulsar").definedBy("tidegate.pulsar")
                .layer("indexlog").definedBy("tidegate.pulsar.indexlog")
                .layer("readahead").definedBy("tidegate.pulsar.readahead")
                .layer("web").definedBy("tidegate.pulsar.web")
                .layer("cursor").definedBy("tidegate.pulsar.cursor")
                .layer("link").definedBy("tidegate.pulsar.link")
                .layer("gate").definedBy("tidegate.pulsar.gate")
                .layer("position").definedBy("tidegate.pulsar.position")
                .layer("wire").definedBy("tidegate.pulsar.wire")
                .layer("timing").definedBy("tidegate.pulsar.timing")
                .whereLayer("pulsar").mayNotBeAccessedByAnyLayer()
                .whereLayer("indexlog").mayOnlyBeAccessedByLayers("pulsar")
                .whereLayer("readahead").mayOnlyBeAccessedByLayers("pulsar")
                .whereLayer("web").mayOnlyBeAccessedByLayers("pulsar")
                .whereLayer("link").mayOnlyBeAccessedByLayers("pulsar", "web")
                .whereLayer("cursor").mayOnlyBeAccessedByLayers("pulsar", "indexlog")
                .whereLayer("gate").mayOnlyBeAccessedByLayers("pulsar", "indexlog", "readahead", "link", "cursor")
                .whereLayer("position").mayOnlyBeAccessedByLayers("pulsar", "readahead", "link", "gate")
                .whereLayer("timing").mayOnlyBeAccessedByLayers("pulsar", "readahead", "link", "gate", "cursor", "indexlog")
                .check(SHIM);
    }

    @Test
    void noClassesFormACircle() {
        slices().assignedFrom(TOP_LEVEL_CLASSES).should().beFreeOfCycles().check(SHIM);
    }

    @Test
    void thePublicClassesOfTheTopRoomAreThoseThatPulsarLoads() {
        classes().that().resideInAPackage("tidegate.pulsar").and().arePublic()
                .should().haveSimpleName("TrackerFactory").orShould().haveSimpleName("Tracker").orShould().haveSimpleName("WebApi")
                .check(SHIM);
    }

    /** Error Prone checks the fields that name their lock, and no others. */
    @Test
    void whoTakesTheTrackersLockGuardsEachPartByIt() {
        JavaClass parts = SHIM.get("tidegate.pulsar.gate.TrackerParts");
        Set<JavaClass> guarded = parts.getFields().stream().filter(field -> field.isAnnotatedWith(GuardedBy.class))
                .map(JavaField::getRawType).collect(Collectors.toSet());
        assertEquals(15, guarded.size());
        List<String> unguarded = SHIM.stream()
                .filter(one -> one.getPackageName().equals(parts.getPackageName()) && one.tryGetField("lock").isPresent())
                .flatMap(one -> one.getFields().stream())
                .filter(field -> guarded.contains(field.getRawType()) && !field.isAnnotatedWith(GuardedBy.class))
                .map(JavaField::getFullName).sorted().toList();
        assertEquals(List.of(), unguarded);
    }
}
